"""Whether a tree stood still between its stop and its going on: told from CPU time and threads, whoever stopped it.

A control group's freezer cannot be undone from inside, SIGSTOP can. Both are checked alike: what was stopped uses no
CPU time, has no thread that it had not, and where signals stopped it every thread is still stopped. Threads are
counted, not processes: the first one may have ended. Sources: proc(5), the kernel's scheduler/sched-stats.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vibeserve.sandbox import tree
from vibeserve.sandbox.cgroups import SIGNAL, Cgroup

MAX_CPU_S = 0.02
"""that a stopped tree may use, in all: ours. Two ticks of the kernel's clock, where times are read in ticks"""
NUM_LOOKS = 5
"""listings of /proc at the end: a process that hops is in some of them only"""
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")

Thread = tuple[int, int, int]
"""process, thread, start time"""


@dataclass(frozen=True, kw_only=True)
class Standstill:
    """The tree at its stop."""

    threads: dict[Thread, float]
    """CPU seconds so far"""
    group_s: float | None
    """of the whole control group, those that have ended too"""
    stopped_by: str


def stand(pids: Sequence[int], cgroup: Cgroup, *, stopped_by: str) -> Standstill:
    """Look at a tree that has just been stopped."""
    return Standstill(threads=_threads(pids), group_s=cgroup.cpu_s(), stopped_by=stopped_by)


def moved(before: Standstill, pids: Sequence[int], cgroup: Cgroup) -> str:
    """What of a stopped tree did not stand still since `before`; empty = it did. Call it before it goes on."""
    after = _threads(pids)
    new = sorted(set(after) - set(before.threads))
    if new:
        return f"{len(new)} of its threads are new: it ran while it was stopped"
    used_s = sum(max(0.0, seconds - before.threads[thread]) for thread, seconds in after.items())
    group_s = cgroup.cpu_s()
    if group_s is not None and before.group_s is not None:
        used_s = max(used_s, group_s - before.group_s)
    if used_s > MAX_CPU_S:
        return f"it used {used_s:.2f} s of CPU time while it was stopped; at most {MAX_CPU_S:g} s is allowed"
    awake = _awake(pids, cgroup, stopped_by=before.stopped_by)
    return f"{awake} of its threads were not stopped any more" if awake else ""


def _threads(pids: Sequence[int]) -> dict[Thread, float]:
    found: dict[Thread, float] = {}
    for pid in pids:
        for thread in tree.threads(pid):
            if thread.state not in "ZX":
                found[pid, thread.pid, thread.start_ticks] = _cpu_s(pid, thread.pid)
    return found


def cpu_s_of(pid: int) -> float:
    """CPU seconds of the live threads of a process."""
    return sum(_cpu_s(pid, thread.pid) for thread in tree.threads(pid))


def _cpu_s(pid: int, thread: int) -> float:
    """CPU seconds of one thread: nanoseconds where the kernel tells them, else ticks; 0 when it has ended."""
    folder = Path("/proc") / str(pid) / "task" / str(thread)
    try:
        return int((folder / "schedstat").read_text(encoding="ascii").split()[0]) / 1e9
    except (FileNotFoundError, ProcessLookupError, IndexError):
        pass
    try:
        text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(field) for field in text[text.rindex(")") + 2 :].split()[11:13]) * _TICK_S


def _awake(pids: Sequence[int], cgroup: Cgroup, *, stopped_by: str) -> int:
    """Threads that run or could. What waits inside the kernel (D) stops when it comes out; a frozen group's threads
    look asleep, and the kernel vouches for them."""
    if stopped_by != SIGNAL:
        if cgroup.is_frozen():
            return 0
        return sum(thread.state == "R" for pid in pids for thread in tree.threads(pid))
    return sum(thread.state not in "TtDZX" for pid in pids for thread in tree.threads(pid))
