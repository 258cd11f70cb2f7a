"""A control group per wall, where the hierarchy (version 1 or 2) is writable: the limits that bind root too.

RLIMIT_NPROC does not bind uid 0 (fork(2)), and for other users it counts the user's processes everywhere. RLIMIT_AS
counts what is mapped, not what is used, and a runtime maps far more than it uses. Sources: the kernel's
admin-guide/cgroup-v1 (memory, pids) and admin-guide/cgroup-v2.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from vibeserve.sandbox.resources import Exceeded, Resources

_ROOT = Path("/sys/fs/cgroup")
_SELF = Path("/proc/self/cgroup")


@dataclass(frozen=True, kw_only=True)
class Cgroup:
    """The groups of one tree: one folder for each controller that could be had; version 2 has one for both."""

    pids: Path | None
    memory: Path | None

    @property
    def folders(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys(folder for folder in (self.pids, self.memory) if folder is not None))

    def enter(self, pid: int) -> None:
        """Move a process, and with it what it forks later, into the groups."""
        for folder in self.folders:
            (folder / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def members(self) -> list[int]:
        """Live processes inside, whoever their parents are."""
        found: set[int] = set()
        for folder in self.folders:
            with contextlib.suppress(OSError):
                found |= {int(line) for line in (folder / "cgroup.procs").read_text(encoding="ascii").split()}
        return sorted(found)

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


def _count(folder: Path, *files: str, key: str) -> list[int]:
    """Values of `key` in those of the files that are there; version 1 and 2 name them differently."""
    values = [0]
    for file in files:
        with contextlib.suppress(OSError):
            rows = (line.split() for line in (folder / file).read_text(encoding="ascii").splitlines())
            values += [int(row[1]) for row in rows if len(row) == 2 and row[0] == key]
    return values


def _parent(controller: str) -> Path | None:
    """Cgroup of ours below which a child with that controller may be made."""
    for line in _SELF.read_text(encoding="ascii", errors="replace").splitlines():
        _, controllers, where = line.split(":", 2)
        if controller in controllers.split(","):
            return _ROOT / controllers / where.lstrip("/")
        if controllers == "":
            folder = _ROOT / where.lstrip("/")
            with contextlib.suppress(OSError):
                if controller in (folder / "cgroup.subtree_control").read_text(encoding="ascii").split():
                    return folder
    return None


def cgroup_of(tree_id: str) -> Cgroup:
    """Where the groups of that tree are, or would be."""
    parents = {name: _parent(name) for name in ("pids", "memory")}
    return Cgroup(**{name: None if at is None else at / f"vibeserve-{tree_id}" for name, at in parents.items()})


def make_cgroup(tree_id: str, resources: Resources) -> Cgroup:
    """New groups with those limits; without the controllers that are not permitted (rlimits and the guard remain)."""
    wanted = cgroup_of(tree_id)
    return Cgroup(
        pids=_made(wanted.pids, _pids_files(resources)), memory=_made(wanted.memory, _memory_files(resources))
    )


def _pids_files(resources: Resources) -> dict[str, tuple[str, bool]]:
    # one more than asked for: the outer process of a wall is inside, too
    return {"pids.max": (str(resources.max_processes + 1), True)}


def _memory_files(resources: Resources) -> dict[str, tuple[str, bool]]:
    """File -> (value, whether the limit depends on it). Those of the other version are not there and are skipped."""
    size = str(resources.memory_bytes)
    swap = {"memory.memsw.limit_in_bytes": (size, False), "memory.swap.max": ("0", False)}
    return {
        "memory.limit_in_bytes": (size, True), "memory.max": (size, True), **swap, "memory.oom.group": ("1", False)
    }  # fmt: skip


def _made(folder: Path | None, files: dict[str, tuple[str, bool]]) -> Path | None:
    """The folder with its limits written; None where one that matters cannot be."""
    if folder is None or not os.access(folder.parent, os.W_OK):
        return None
    is_new = not folder.exists()
    try:
        folder.mkdir(exist_ok=True)
        if _write_limits(folder, files):
            return folder
    except OSError:
        pass
    if is_new:
        with contextlib.suppress(OSError):
            folder.rmdir()
    return None


def _write_limits(folder: Path, files: dict[str, tuple[str, bool]]) -> bool:
    """Whether a limit that matters was written. OSError where one is there and does not take its value."""
    has_limit = False
    for name, (value, matters) in files.items():
        if not (folder / name).exists():
            continue
        try:
            (folder / name).write_text(value, encoding="ascii")
        except OSError:
            if matters:
                raise
        has_limit |= matters
    return has_limit
