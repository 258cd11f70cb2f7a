"""Who else was on the cores while a window was measured: the machine's own counters before and after it.

Three things spoil a window and are not the servers' doing: the hypervisor gives the core to another guest (steal,
proc(5)), another process of this machine runs on the engine's cores, or heat and power lower the clock. Other
processes' time is what the cores were busy for beyond the measured tree's own CPU seconds.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vibeserve.errors import InfraError

_STAT = Path("/proc/stat")
_CPUS = Path("/sys/devices/system/cpu")
_BUSY_FIELDS = (0, 1, 2, 5, 6)
"""user, nice, system, irq, softirq of a line of /proc/stat"""
_STEAL_FIELD = 7
GPU_SLOWDOWNS = (
    "THROTTLE_REASON_HW_SLOWDOWN", "THROTTLE_REASON_HW_THERMAL_SLOWDOWN", "THROTTLE_REASON_HW_POWER_BRAKE_SLOWDOWN",
    "EVENT_REASON_SW_THERMAL_SLOWDOWN",
)  # fmt: skip
"""of NVML's clock event reasons those that heat or a failing power supply cause; a power cap is a GPU's normal state"""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Counters at one moment. Seconds since boot, summed over the cores that were asked for."""

    busy_s: float
    steal_s: float
    tree_s: float
    """CPU seconds of the measured process tree"""
    num_throttled: int
    """thermal throttling events of those cores so far, where the kernel counts them"""


def read_counters(cpus: Sequence[int], *, tree_s: float) -> Reading | None:
    """The counters of `cpus`; None without cores of the engine's own, or without /proc/stat."""
    if not cpus:
        return None
    try:
        lines = _STAT.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    rows = {line.split()[0]: [int(field) for field in line.split()[1:]] for line in lines if line.startswith("cpu")}
    wanted = [rows[f"cpu{cpu}"] for cpu in cpus if f"cpu{cpu}" in rows]
    if len(wanted) != len(set(cpus)):
        return None
    tick_s = 1.0 / os.sysconf("SC_CLK_TCK")
    return Reading(
        busy_s=tick_s * sum(row[place] for row in wanted for place in _BUSY_FIELDS),
        steal_s=tick_s * sum(row[_STEAL_FIELD] for row in wanted),
        tree_s=tree_s, num_throttled=sum(_throttle_count(cpu) for cpu in cpus),
    )  # fmt: skip


def neighbour_facts(before: Reading | None, after: Reading | None, *, cpus: int, seconds: float) -> dict[str, float]:
    """Shares of the cores' time between two readings: `steal_share`, `foreign_share`; and `num_throttled` events.

    Empty without readings: what was not read is not claimed to be quiet.
    """
    if before is None or after is None or cpus <= 0 or seconds <= 0:
        return {}
    total_s = cpus * seconds
    foreign_s = (after.busy_s - before.busy_s) - (after.tree_s - before.tree_s)
    return {
        "steal_share": max(0.0, after.steal_s - before.steal_s) / total_s,
        "foreign_share": max(0.0, foreign_s) / total_s,
        "num_throttled": float(max(0, after.num_throttled - before.num_throttled)),
    }


def _throttle_count(cpu: int) -> int:
    """Of Intel's thermal interrupt counters; 0 where the kernel has none (virtual machines, other vendors)."""
    folder = _CPUS / f"cpu{cpu}" / "thermal_throttle"
    total = 0
    for name in ("core_throttle_count", "package_throttle_count"):
        with contextlib.suppress(OSError, ValueError):
            total += int((folder / name).read_text(encoding="ascii"))
    return total


def gpu_slowdowns(indices: Sequence[int]) -> list[str]:
    """NVML's reasons for a lowered clock that spoil a measurement, by GPU. Empty without a GPU.

    InfraError where there are GPUs and NVML cannot be asked: nobody could say that they ran at full clock.
    """
    if not indices:
        return []
    try:
        from cuda.bindings import nvml

        nvml.init_v2()
    except (ImportError, RuntimeError) as error:
        raise InfraError(f"NVML cannot tell whether the GPUs are throttled: {error}") from error
    masks = {name: int(getattr(nvml.ClocksEventReasons, name)) for name in GPU_SLOWDOWNS}
    found = []
    try:
        for index in indices:
            active = nvml.device_get_current_clocks_event_reasons(nvml.device_get_handle_by_index_v2(index))
            found += [f"gpu {index}: {name.lower()}" for name, mask in masks.items() if active & mask]
    finally:
        nvml.shutdown()
    return found
