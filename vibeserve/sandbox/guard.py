"""The controller's watch over one tree: what takes more memory or disk than it may is killed as a whole.

Memory is counted by the kernel where the tree has a memory control group (its own kills are only noticed here, and
extended to the whole tree). Elsewhere it is sampled, so a tree may be over its limit for an interval. Disk is always
sampled. Mapped files are not counted as memory: the kernel takes their pages back.
"""

from __future__ import annotations

import contextlib
import os
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from vibeserve.sandbox import tree
from vibeserve.sandbox.cgroups import Cgroup
from vibeserve.sandbox.resources import Exceeded, Resources

INTERVAL_S = 0.25
DISK_INTERVAL_S = 1.0
_DISK_SHARE = 0.05
"""of the controller's time at most, for looking at what was written"""
_BLOCK = 512  # unit of st_blocks, stat(2)


class Guard:
    """Watches from `start` until `stop`, or until the tree has ended. `exceeded` says why it killed, if it did."""

    def __init__(
        self,
        *,
        pid: int,
        start_ticks: int,
        keepers: frozenset[int],
        cgroup: Cgroup,
        resources: Resources,
        written: Sequence[Path],
    ) -> None:
        """`pid` is the outer process, `written` what of the host's disk the inside may grow: folders and the log."""
        self.exceeded: Exceeded | None = None
        self.peak_own_bytes = 0
        """highest memory of the tree that no file backs, where the kernel counts it"""
        self._pid, self._start_ticks, self._keepers = pid, start_ticks, keepers
        self._cgroup, self._resources, self._written = cgroup, resources, tuple(written)
        self._ended = threading.Event()
        self._before_bytes = written_bytes(self._written)
        self._next_disk_s = 0.0
        self._thread = threading.Thread(target=self._watch, name=f"vibeserve-guard-{pid}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when it does not look, nor kill, any more, after a last look at the disk. Safe to call again."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()
        self._next_disk_s = 0.0
        if self.exceeded is None and self._is_disk_exceeded():
            self.exceeded = Exceeded.DISK

    def _watch(self) -> None:
        while not self._ended.wait(INTERVAL_S):
            if not tree.is_alive(self._pid, start_ticks=self._start_ticks):
                return
            self.exceeded = self._look()
            if self.exceeded is not None:
                self._cgroup.kill()
                tree.kill_all(self._pid, keep=self._keepers)
                return

    def _look(self) -> Exceeded | None:
        is_counted = self._cgroup.memory is not None
        if is_counted:
            self.peak_own_bytes = max(self.peak_own_bytes, self._cgroup.own_bytes())
            if self._cgroup.exceeded() is Exceeded.MEMORY:
                return Exceeded.MEMORY
        elif tree.own_memory_bytes(self._pids(), at_least=self._resources.memory_bytes) > self._resources.memory_bytes:
            return Exceeded.MEMORY
        return Exceeded.DISK if self._is_disk_exceeded() else None

    def _pids(self) -> list[int]:
        return [each.pid for each in tree.descendants(self._pid) if each.pid not in self._keepers]

    def _is_disk_exceeded(self) -> bool:
        start_s = time.monotonic()
        if start_s < self._next_disk_s:
            return False
        # a deleted file needs a folder that it was made in
        pids = self._pids() if any(path.is_dir() for path in self._written) else []
        grown = written_bytes(self._written, pids=pids) - self._before_bytes
        end_s = time.monotonic()
        self._next_disk_s = end_s + max(DISK_INTERVAL_S, (end_s - start_s) / _DISK_SHARE)
        # as much as it may: one file cannot grow beyond that (RLIMIT_FSIZE)
        return grown >= self._resources.disk_bytes


def written_bytes(paths: Sequence[Path], *, pids: Sequence[int] = ()) -> int:
    """Bytes on disk of the files at and below `paths`, and of deleted ones that `pids` hold open on the same disks."""
    sizes: dict[tuple[int, int], int] = {}
    for entry in _entries(paths):
        sizes[entry.st_dev, entry.st_ino] = entry.st_blocks * _BLOCK
    disks = {device for device, _ in sizes}
    for entry in _open_files(pids):
        if stat.S_ISREG(entry.st_mode) and entry.st_nlink == 0 and entry.st_dev in disks:
            sizes[entry.st_dev, entry.st_ino] = entry.st_blocks * _BLOCK
    return sum(sizes.values())


def _entries(paths: Sequence[Path]) -> Iterator[os.stat_result]:
    """Of every path and of what lies below it; links are not followed, what vanishes meanwhile is left out."""
    queue = [str(path) for path in paths]
    while queue:
        path = queue.pop()
        try:
            found = os.lstat(path)
            yield found
            if stat.S_ISDIR(found.st_mode):
                queue += [entry.path for entry in os.scandir(path)]
        except OSError:
            continue


def _open_files(pids: Sequence[int]) -> Iterator[os.stat_result]:
    for pid in pids:
        for link in tree.descriptors(pid):
            with contextlib.suppress(OSError):
                yield link.stat()
