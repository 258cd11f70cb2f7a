"""Processes, threads and libraries of a running tree, read from /proc: whatever language it is written in."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
SYSTEM = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/")
"""where the system's libraries lie, which every program maps"""
MAX_LIBRARIES = 60


@dataclass(frozen=True, kw_only=True)
class ThreadClock:
    """One thread at one moment."""

    pid: int
    tid: int
    """as the machine numbers it"""
    inner_tid: int
    """as its own pid namespace does"""
    name: str
    cpu_s: float


def read_threads(pids: Sequence[int], *, proc: Path = PROC) -> dict[int, ThreadClock]:
    """Every thread of the processes by its number; those that end meanwhile are left out."""
    found: dict[int, ThreadClock] = {}
    for pid in pids:
        folder = proc / str(pid) / "task"
        for task in sorted(folder.iterdir()) if folder.is_dir() else []:
            clock = _clock(pid, task)
            if clock is not None:
                found[clock.tid] = clock
    return found


def _clock(pid: int, task: Path) -> ThreadClock | None:
    try:
        stat = (task / "stat").read_text(encoding="utf-8", errors="replace")
        status = (task / "status").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    name = stat[stat.index("(") + 1 : stat.rindex(")")]
    fields = stat[stat.rindex(")") + 2 :].split()
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    inner = next((line.split()[-1] for line in status.splitlines() if line.startswith("NSpid:")), task.name)
    return ThreadClock(pid=pid, tid=int(task.name), inner_tid=int(inner), name=name, cpu_s=cpu_s)


def cpu_shares(
    before: Mapping[int, ThreadClock], after: Mapping[int, ThreadClock], *, seconds: float
) -> dict[int, float]:
    """CPU seconds over wall seconds of every thread that was there at the end."""
    if seconds <= 0:
        return {}
    return {
        tid: max(0.0, clock.cpu_s - (before[tid].cpu_s if tid in before else 0.0)) / seconds
        for tid, clock in after.items()
    }


def mapped_libraries(pids: Sequence[int], *, proc: Path = PROC) -> tuple[str, ...]:
    """Shared objects that the processes map, by name, without the system's own and extension modules of Python. That
    one is mapped says that it was loaded, not that it ran."""
    names: set[str] = set()
    for pid in pids:
        try:
            text = (proc / str(pid) / "maps").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        paths = {line.split(maxsplit=5)[5] for line in text.splitlines() if len(line.split(maxsplit=5)) == 6}
        names |= {path.rpartition("/")[2] for path in paths if _is_own(path)}
    return tuple(sorted(names)[:MAX_LIBRARIES])


def _is_own(path: str) -> bool:
    name = path.rpartition("/")[2]
    is_library = path.startswith("/") and (name.endswith(".so") or ".so." in name)
    is_extension = ".cpython-" in name or ".abi3." in name
    return is_library and not is_extension and not path.startswith(SYSTEM)
