"""What the machine was like: pressure, steal, and a memory-bandwidth reading beside every pair.

A quiet host still drifts by up to two within an hour and pressure does not show it, so a fixed piece of work is timed
with all contenders paused: reading one buffer on huge pages and one on 4 KiB pages, on the engine's first core.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

BUFFER_BYTES = 32 << 20
READING_S = 0.02
"""per buffer; a reading of both stays near 50 ms"""
_PRESSURE = Path("/proc/pressure/cpu")
_STAT = Path("/proc/stat")


class Sentinel:
    """Reads memory bandwidth on one core. Holds its two buffers as long as it lives, so a reading allocates nothing."""

    def __init__(self, *, cpus: Sequence[int] = ()) -> None:
        self._cpus = {cpus[0]} if cpus else set()
        self._buffers = {"sentinel_huge_gb_s": _buffer("MADV_HUGEPAGE"), "sentinel_4k_gb_s": _buffer("MADV_NOHUGEPAGE")}

    def read(self) -> dict[str, float]:
        """GB/s by buffer, and the share of that time in which some task of the machine waited for a core."""
        before, start_s = pressure_total_s(), time.monotonic()
        with _on(self._cpus):
            facts = {name: _read_gb_s(buffer) for name, buffer in self._buffers.items()}
        waited = pressure_total_s() - before
        facts["psi_share"] = max(0.0, waited) / (time.monotonic() - start_s)
        return facts


def machine_facts() -> dict[str, float]:
    """`psi_avg10` in percent (absent without PSI), `steal_s` since boot (absent without /proc/stat)."""
    facts = {}
    with contextlib.suppress(OSError):
        facts["psi_avg10"] = float(_pressure_fields()["avg10"])
    with contextlib.suppress(OSError):
        ticks = int(_STAT.read_text().splitlines()[0].split()[8])
        facts["steal_s"] = ticks / os.sysconf("SC_CLK_TCK")
    return facts


def pressure_total_s() -> float:
    """Seconds in which some task waited for a core, since boot; 0 where the kernel has no PSI."""
    try:
        return int(_pressure_fields()["total"]) / 1e6
    except OSError:
        return 0.0


def _pressure_fields() -> dict[str, str]:
    some = next(line for line in _PRESSURE.read_text().splitlines() if line.startswith("some"))
    return dict(field.split("=", 1) for field in some.split()[1:])


def _buffer(advice: str) -> np.ndarray:
    import numpy as np

    memory = mmap.mmap(-1, BUFFER_BYTES)
    option = getattr(mmap, advice, None)
    if option is not None:
        with contextlib.suppress(OSError):  # a kernel without transparent huge pages: both readings are then of 4 KiB
            memory.madvise(option)
    array = np.frombuffer(memory, dtype=np.int64)
    array.fill(1)  # touch every page now
    return array


def _read_gb_s(buffer: np.ndarray) -> float:
    """Best of the passes that fit the time: interruptions only ever make a pass slower."""
    best_s = float("inf")
    deadline_s = time.monotonic() + READING_S
    while True:
        start_s = time.monotonic()
        buffer.max()
        now_s = time.monotonic()
        best_s = min(best_s, now_s - start_s)
        if now_s >= deadline_s:
            return buffer.nbytes / best_s / 1e9


@contextlib.contextmanager
def _on(cpus: set[int]) -> Iterator[None]:
    """This thread on `cpus` for a while; no cpus, or cores that are not ours: where it is."""
    if not cpus or not hasattr(os, "sched_setaffinity"):
        yield
        return
    previous = os.sched_getaffinity(0)
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, previous)
