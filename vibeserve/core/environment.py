"""Document: the machine as it was while something was measured on it."""

from __future__ import annotations

from dataclasses import dataclass

PROCESSES = "processes"
"""the way in which memory was counted where none is recorded"""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """Every fact of the machine that can move a number. None and empty stand for what the machine does not tell."""

    cpu_model: str
    cpu_flags: tuple[str, ...]
    """instruction sets that change which kernels run (`hardware.COMPUTE_FLAGS`)"""
    cpu_governor: str
    """frequency governor of the engine's cores; empty where the machine has none to ask (most virtual machines)"""
    is_virtual: bool
    """the CPU reports a hypervisor: cores may be shared, steal says how much"""
    memory_gib: float
    transparent_huge_pages: str
    kernel: str
    python: str
    packages: dict[str, str]
    """installed version by name, of what computes and what serves"""
    lock_digest: str
    """SHA-256 of the installed versions of all direct dependencies"""
    sandbox_tier: str
    engine_cpus: tuple[int, ...]
    client_cpus: tuple[int, ...]
    threads: int
    gpus: tuple[str, ...] = ()
    load_average_before: float | None = None
    """of one minute, before the first server started"""
    cpu_pressure_before: float | None = None
    """share of the ten seconds before in which something waited for a CPU, 0 to 1"""
    cpu_pressure: float | None = None
    """the same over the whole measurement, the load generator's and the servers' own waiting included"""
    steal_share: float | None = None
    """share of all cores' time that the hypervisor took during the measurement, 0 to 1"""
    wall_s: float = 0.0
    """from the first start to the last window"""
    started_at: str = ""
    """UTC, ISO 8601"""
    stopped_by: str = ""
    """what stopped servers between their windows: cgroup v2, cgroup v1, SIGSTOP; empty = not recorded"""
    memory_counted_by: str = PROCESSES
    """`peak_memory` is of what the processes map, or also of what a control group holds and none of them maps"""
    schema_version: int = 1


def comparable(metric: str, seen: Environment | None, other: Environment | None) -> bool:
    """Whether values of two measurements mean the same: peak_memory does where it was counted in the same way."""
    ways = {PROCESSES if each is None else each.memory_counted_by for each in (seen, other)}
    return metric != "peak_memory" or len(ways) == 1
