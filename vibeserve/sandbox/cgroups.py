"""A control group per wall, where a hierarchy (version 1 or 2) is writable: limits that bind root too, a stop that
nothing inside can undo, a kill that misses nobody, and the kernel's own counts of CPU time and memory.

RLIMIT_NPROC does not bind uid 0 (fork(2)), and for other users it counts the user's processes everywhere. RLIMIT_AS
counts what is mapped, not what is used, and a runtime maps far more than it uses. SIGSTOP is undone by any SIGCONT, a
timer's included, and misses who is in no listing of /proc. Sources: the kernel's admin-guide/cgroup-v1 (memory, pids,
freezer-subsystem, cpuacct) and admin-guide/cgroup-v2.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from vibeserve.sandbox import tree
from vibeserve.sandbox.resources import Exceeded

_POLL_S = 0.001
FREEZE_TIMEOUT_S = 10.0
V2, V1, SIGNAL = "cgroup v2", "cgroup v1", "SIGSTOP"


@dataclass(frozen=True, kw_only=True)
class Cgroup:
    """The groups of one tree: one folder for each purpose that could be had; version 2 has one for several."""

    pids: Path | None
    memory: Path | None
    freezer: Path | None = None
    cpu: Path | None = None

    @classmethod
    def at(cls, folders: Iterable[Path]) -> Cgroup:
        """The groups that are there, told by their files."""
        marks = {
            "pids": ("pids.max",), "memory": ("memory.stat",), "freezer": ("cgroup.freeze", "freezer.state"),
            "cpu": ("cpu.stat", "cpuacct.usage"),
        }  # fmt: skip
        there = [folder for folder in folders if folder.is_dir()]
        found: dict[str, Path | None] = dict.fromkeys(marks)
        for name, files in marks.items():
            for folder in there:
                if any((folder / file).exists() for file in files):
                    found[name] = found[name] or folder
        return cls(**found)

    @property
    def folders(self) -> tuple[Path, ...]:
        found = (getattr(self, item.name) for item in fields(self))
        return tuple(dict.fromkeys(folder for folder in found if folder is not None))

    @property
    def stopped_by(self) -> str:
        if self.freezer is None:
            return SIGNAL
        # of the parent, which outlives the group
        return V2 if (self.freezer.parent / "cgroup.controllers").exists() else V1

    def enter(self, pid: int) -> None:
        """Move a process, and with it what it forks later, into the groups."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def members(self) -> list[int]:
        """Processes inside, whoever their parents are."""
        found: set[int] = set()
        for folder in self.folders:
            with contextlib.suppress(OSError):
                found |= {int(line) for line in (folder / "cgroup.procs").read_text(encoding="ascii").split()}
        return sorted(found)

    def freeze(self, *, timeout_s: float = FREEZE_TIMEOUT_S) -> bool:
        """Stop everything inside, also what is forking; False where there is no freezer. Returns when all stand, or
        after `timeout_s`: what sleeps in the kernel stands when it comes out (`is_frozen`)."""
        if self.freezer is None:
            return False
        deadline = time.monotonic() + timeout_s
        while True:
            self._order(is_frozen=True)
            if self.is_frozen() or not self.freezer.is_dir() or time.monotonic() > deadline:
                return True
            time.sleep(_POLL_S)

    def is_frozen(self) -> bool:
        """Whether everything inside stands, by the kernel's word."""
        if self.freezer is None:
            return False
        if self.stopped_by == V2:
            return max(_count(self.freezer, "cgroup.events", key="frozen")) == 1
        return text_of(self.freezer / "freezer.state") == "FROZEN"

    def thaw(self) -> None:
        self._order(is_frozen=False)

    def _order(self, *, is_frozen: bool) -> None:
        if self.freezer is None or not self.freezer.is_dir():
            return
        if self.stopped_by == V2:
            _tell(self.freezer / "cgroup.freeze", "1" if is_frozen else "0")
        else:
            _tell(self.freezer / "freezer.state", "FROZEN" if is_frozen else "THAWED")

    def kill(self, *, timeout_s: float = 10.0) -> int:
        """SIGKILL all inside, frozen or not, and wait until they are gone; how many there were. What is left after
        `timeout_s` is the caller's to report."""
        deadline = time.monotonic() + timeout_s
        killed: set[int] = set()
        while True:
            self.freeze(timeout_s=0.1)
            # what is in the group is the tree's; nothing may turn this on its own controller
            inside = [pid for pid in self.members() if pid != os.getpid() and tree.is_running(pid)]
            killed |= set(inside)
            if inside and self.freezer is not None and (self.freezer / "cgroup.kill").exists():
                _tell(self.freezer / "cgroup.kill", "1")
            for pid in inside:
                tree.send(pid, signal.SIGKILL)
            # version 1 keeps the killed frozen
            self.thaw()
            if not inside or time.monotonic() > deadline:
                return len(killed)
            time.sleep(_POLL_S)

    def cpu_s(self) -> float | None:
        """CPU seconds of everything that was ever inside, by the kernel's count; None where it keeps none."""
        if self.cpu is None:
            return None
        micro = max(_count(self.cpu, "cpu.stat", key="usage_usec"))
        return micro / 1e6 if micro else int(text_of(self.cpu / "cpuacct.usage") or 0) / 1e9

    def own_bytes(self) -> int:
        """Memory inside that no file on disk backs, mapped by a process or not: a tmpfs and a memfd are in it, the page
        cache is not. 0 where it is not counted."""
        if self.memory is None:
            return 0
        # version 1 names anonymous memory rss
        return sum(max(_count(self.memory, "memory.stat", key=key)) for key in ("anon", "rss", "shmem"))

    def exceeded(self) -> Exceeded | None:
        """The limit that the kernel enforced so far, memory first: it ended something."""
        if self.memory is not None and max(_count(self.memory, "memory.oom_control", "memory.events", key="oom_kill")):
            return Exceeded.MEMORY
        if self.pids is not None and max(_count(self.pids, "pids.events", key="max")):
            return Exceeded.PROCESSES
        return None

    def remove(self) -> None:
        """Remove the emptied groups. The kernel lets go of dead processes a little late."""
        for folder in self.folders:
            for _ in range(50):
                try:
                    folder.rmdir()
                except FileNotFoundError:
                    break
                except OSError:
                    time.sleep(0.01)


def text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _tell(file: Path, value: str) -> None:
    """Write to a file of a group that may be removed meanwhile."""
    try:
        file.write_text(value, encoding="ascii")
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV):
            raise


def _count(folder: Path, *files: str, key: str) -> list[int]:
    """Values of `key` in those of the files that are there; version 1 and 2 name them differently."""
    values = [0]
    for file in files:
        rows = (line.split() for line in text_of(folder / file).splitlines())
        values += [int(row[1]) for row in rows if len(row) == 2 and row[0] == key]
    return values
