"""Read bandwidth of given cores, from huge pages where the kernel grants them."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor


def measure_bandwidth_gb_s(cpus: Sequence[int], *, size_mib: int = 256, num_repeats: int = 5) -> float:
    """Best read rate of `cpus` together over a buffer of `size_mib`, in GB/s (1e9 bytes).

    One thread per CPU, each pinned and reading its own slice with a vectorised integer maximum (memory-bound on every
    x86 and ARM core tried). Huge pages are asked for: 4 KiB pages read up to four times slower on virtual machines.
    A number for the journal and the roofline, never for a plan's hash: it drifts by up to two within an hour.
    """
    import numpy as np

    size = size_mib << 20
    buffer = mmap.mmap(-1, size)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        buffer.madvise(mmap.MADV_HUGEPAGE)
    words = np.frombuffer(buffer, dtype=np.int32)
    words[:] = 1  # first touch: a page that was never written maps to the shared zero page
    slices = np.array_split(words, len(cpus))

    def read(cpu: int, part: np.ndarray[tuple[int], np.dtype[np.int32]]) -> None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {cpu})  # on Linux 0 is the calling thread
        part.max()

    best_s = float("inf")
    with ThreadPoolExecutor(max_workers=len(cpus)) as pool:
        for _ in range(num_repeats):
            started = time.perf_counter()
            list(pool.map(read, cpus, slices))
            best_s = min(best_s, time.perf_counter() - started)
    del words, slices
    return size / best_s / 1e9
