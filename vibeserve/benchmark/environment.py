"""What the machine was like during a measurement, from readings before and after it."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from vibeserve.benchmark.sentinel import machine_facts, pressure_total_s
from vibeserve.core.environment import Environment
from vibeserve.hardware import HardwareFacts, identity
from vibeserve.plan import Plan
from vibeserve.sandbox import probe_limits
from vibeserve.sandbox.tiers import FREEZER, MEMORY_COUNT

PACKAGES = ("vibeserve", "torch", "transformers", "numpy", "tokenizers", "safetensors", "uvicorn", "aiohttp")
_STAT = Path("/proc/stat")
_PRESSURE = Path("/proc/pressure/cpu")
_STEAL_FIELD = 7
_GUEST_FIELD = 8
"""guest and guest_nice come from here on and are part of user and nice already (proc(5))"""


@dataclass(frozen=True, kw_only=True)
class MachineReading:
    """The machine's counters at one moment; None where it keeps none."""

    at_s: float
    """monotonic"""
    time_s: float
    """seconds since the epoch"""
    load_average: float | None
    pressure_avg10: float | None
    """0 to 1"""
    pressure_s: float | None
    steal_ticks: int | None
    all_ticks: int | None


def read_machine() -> MachineReading:
    """Counters of the whole machine; takes a millisecond and starts nothing."""
    ticks = _ticks()
    average = machine_facts().get("psi_avg10")
    return MachineReading(
        at_s=time.monotonic(), time_s=time.time(), load_average=_load_average(),
        pressure_avg10=None if average is None else average / 100,
        pressure_s=pressure_total_s() if _PRESSURE.is_file() else None,
        steal_ticks=ticks[_STEAL_FIELD] if ticks else None, all_ticks=sum(ticks[:_GUEST_FIELD]) if ticks else None,
    )  # fmt: skip


def environment(
    plan: Plan, *, facts: HardwareFacts, before: MachineReading, after: MachineReading, sandbox_tier: str
) -> Environment:
    """The record of a measurement of `plan` between two readings, on the machine of `facts`, by this process's
    packages."""
    held = probe_limits()
    return Environment(
        cpu_model=facts.cpu_model, cpu_flags=tuple(identity(facts)["cpu_flags"]), cpu_governor=facts.cpu_governor,
        is_virtual="hypervisor" in facts.cpu_flags, memory_gib=round(facts.memory_gib, 2),
        transparent_huge_pages=facts.transparent_huge_pages, kernel=f"{facts.system} {facts.kernel}",
        python=platform.python_version(), packages=_versions(),
        lock_digest=plan.digests["lock"], sandbox_tier=sandbox_tier, engine_cpus=plan.engine_cpus,
        client_cpus=plan.client_cpus, threads=plan.threads,
        gpus=tuple(f"{gpu.name}, sm {gpu.sm}, driver {gpu.driver or 'unknown'}" for gpu in facts.gpus),
        load_average_before=before.load_average, cpu_pressure_before=before.pressure_avg10,
        cpu_pressure=_share(before.pressure_s, after.pressure_s, of=after.at_s - before.at_s),
        steal_share=_steal_share(before, after), wall_s=round(after.at_s - before.at_s, 1),
        started_at=datetime.fromtimestamp(before.time_s, UTC).isoformat(timespec="seconds"),
        stopped_by=held[FREEZER], memory_counted_by=held[MEMORY_COUNT],
    )  # fmt: skip


def _steal_share(before: MachineReading, after: MachineReading) -> float | None:
    if before.all_ticks is None or after.all_ticks is None:
        return None
    return _share(before.steal_ticks, after.steal_ticks, of=after.all_ticks - before.all_ticks)


def _share(before: float | None, after: float | None, *, of: float) -> float | None:
    """None where a counter was not read or nothing passed: not the same as none at all."""
    if before is None or after is None or of <= 0:
        return None
    return round(min(1.0, max(0.0, after - before) / of), 4)


def _versions() -> dict[str, str]:
    """Those of `PACKAGES` that are installed."""
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _load_average() -> float | None:
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def _ticks() -> list[int]:
    """user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice of all cores; empty without /proc."""
    try:
        return [int(field) for field in _STAT.read_text(encoding="ascii").splitlines()[0].split()[1:]]
    except OSError:
        return []
