"""A pids cgroup per wall where the hierarchy is writable (version 1 or 2): the process limit that binds root too.

RLIMIT_NPROC does not bind uid 0 (fork(2)), and for other users it counts the user's processes everywhere.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def _pids_parent() -> Path | None:
    """Cgroup of ours below which a child cgroup with a pids controller may be made."""
    for line in Path("/proc/self/cgroup").read_text(encoding="ascii", errors="replace").splitlines():
        _, controllers, where = line.split(":", 2)
        if "pids" in controllers.split(","):
            return _ROOT / "pids" / where.lstrip("/")
        if controllers == "":
            folder = _ROOT / where.lstrip("/")
            enabled = folder / "cgroup.subtree_control"
            if enabled.is_file() and "pids" in enabled.read_text(encoding="ascii").split():
                return folder
    return None


def cgroup_of(tree_id: str) -> Path | None:
    """Where the cgroup of that tree is or would be."""
    parent = _pids_parent()
    return None if parent is None else parent / f"vibeserve-{tree_id}"


def make_cgroup(tree_id: str, *, max_processes: int) -> Path | None:
    """A new cgroup that holds at most `max_processes`; None where that is not permitted (rlimits remain)."""
    folder = cgroup_of(tree_id)
    if folder is None or not os.access(folder.parent, os.W_OK):
        return None
    try:
        folder.mkdir()
        (folder / "pids.max").write_text(str(max_processes), encoding="ascii")
    except OSError:
        remove_cgroup(folder)
        return None
    return folder


def enter_cgroup(folder: Path | None, pid: int) -> None:
    """Move a process (and with it what it forks later) into the cgroup."""
    if folder is not None:
        (folder / "cgroup.procs").write_text(str(pid), encoding="ascii")


def remove_cgroup(folder: Path | None) -> None:
    """Remove an emptied cgroup. The kernel lets go of dead processes a little late."""
    for _ in range(50):
        if folder is None or not folder.is_dir():
            return
        try:
            folder.rmdir()
        except OSError:
            time.sleep(0.01)
