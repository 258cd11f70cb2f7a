"""Process trees through /proc: who descends from whom, stop, continue, kill, memory. Linux only.

A process whose first thread has ended goes on with the others: /proc calls it a zombie, and its memory, environment and
descriptors read as empty there. It is alive here, and what is asked of it is read from a thread that lives.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_NUM_QUIET = 2
"""listings in a row that must agree: one may miss a process whose parent ended while it was being made"""


@dataclass(frozen=True, kw_only=True)
class ProcessStat:
    """One line of /proc/<pid>/stat: `start_ticks` (field 22) tells a process from a later one with the same pid."""

    pid: int
    parent: int
    state: str
    start_ticks: int
    num_threads: int = 1
    """those that have not ended, and the first one until the whole process has"""

    @property
    def has_ended(self) -> bool:
        """Nothing of it runs any more: it is only not reaped yet."""
        return self.state == "X" or (self.state == "Z" and self.num_threads <= 1)

    @property
    def is_leaderless(self) -> bool:
        """Its first thread has ended, others go on."""
        return self.state == "Z" and self.num_threads > 1


def read_stat(pid: int, *, of: int | None = None) -> ProcessStat | None:
    """The process's state, or None when there is no such process; with `of`, that of this thread of process `of`."""
    folder = _PROC / str(pid) if of is None else _PROC / str(of) / "task" / str(pid)
    try:
        text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # the name in brackets may hold spaces and brackets itself
    fields = text[text.rindex(")") + 2 :].split()
    return ProcessStat(
        pid=pid, state=fields[0], parent=int(fields[1]), start_ticks=int(fields[19]), num_threads=int(fields[17])
    )


def boot_id() -> str:
    """Differs between boots, so that a pid recorded before a reboot is never mistaken for a live one."""
    return (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def is_alive(pid: int, *, start_ticks: int) -> bool:
    """Whether that very process runs; a zombie does not."""
    stat = read_stat(pid)
    return stat is not None and stat.start_ticks == start_ticks and not stat.has_ended


def is_running(pid: int) -> bool:
    """Whether there is a process of that number; a zombie is none."""
    stat = read_stat(pid)
    return stat is not None and not stat.has_ended


def marked(tree_id: str) -> list[int]:
    """Live processes, other than this one, whose environment carries the tree id."""
    needle = f"VIBESERVE_TREE={tree_id}".encode()
    found: list[int] = []
    for stat in all_stats():
        if stat.has_ended or stat.pid == os.getpid():
            continue
        try:
            if needle in (living(stat.pid) / "environ").read_bytes().split(b"\0"):
                found.append(stat.pid)
        except OSError:
            continue
    return found


def living(pid: int) -> Path:
    """Folder below /proc that tells of the process: its own, or where its first thread has ended another one's."""
    stat = read_stat(pid)
    if stat is not None and stat.is_leaderless:
        for thread in threads(pid):
            if thread.state not in "ZX":
                return _PROC / str(pid) / "task" / str(thread.pid)
    return _PROC / str(pid)


def threads(pid: int) -> list[ProcessStat]:
    """Every thread of the process, ended ones that are still listed too; `pid` is the thread's own number."""
    try:
        numbers = [int(folder.name) for folder in (_PROC / str(pid) / "task").iterdir()]
    except OSError:
        return []
    stats = (read_stat(number, of=pid) for number in numbers)
    return [stat for stat in stats if stat is not None]


def stands(pid: int) -> bool:
    """Whether every thread of the process is stopped."""
    return all(thread.state in "TtZX" for thread in threads(pid))


def descriptors(pid: int) -> list[Path]:
    """The links below /proc/<pid>/fd; none for a process that has ended or is another user's."""
    try:
        return list((living(pid) / "fd").iterdir())
    except OSError:
        return []


def all_stats() -> list[ProcessStat]:
    stats = (read_stat(int(folder.name)) for folder in _PROC.glob("[0-9]*"))
    return [stat for stat in stats if stat is not None]


def descendants(pid: int) -> list[ProcessStat]:
    """Every live descendant of `pid`, parents before children. Zombies are left out, their children are not."""
    by_parent: dict[int, list[ProcessStat]] = {}
    for stat in all_stats():
        by_parent.setdefault(stat.parent, []).append(stat)
    found: list[ProcessStat] = []
    queue = [pid]
    while queue:
        for stat in by_parent.get(queue.pop(0), []):
            queue.append(stat.pid)
            if not stat.has_ended:
                found.append(stat)
    return found


def send(pid: int, number: signal.Signals) -> bool:
    """Send a signal; False when the process is gone already."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def stop_all(pid: int, *, keep: frozenset[int] = frozenset(), timeout_s: float = 2.0) -> list[int]:
    """SIGSTOP every descendant of `pid` but those in `keep`, until no thread of any runs. Returns their pids, parents
    first.

    Repeats because a process may fork between the listing and its own stop. A process that cannot be stopped within
    `timeout_s` (uninterruptible sleep) is returned with the others: its stop is pending.
    """
    deadline = time.monotonic() + timeout_s
    num_quiet = 0
    while True:
        tree = [stat for stat in descendants(pid) if stat.pid not in keep]
        running = [stat for stat in tree if not stands(stat.pid)]
        num_quiet = 0 if running else num_quiet + 1
        if num_quiet == _NUM_QUIET or time.monotonic() > deadline:
            return [stat.pid for stat in tree]
        for stat in running:
            send(stat.pid, signal.SIGSTOP)
        time.sleep(0.001)


def continue_all(pids: list[int]) -> None:
    """SIGCONT in reverse order, so that a child runs before the parent that may wait for it."""
    for pid in reversed(pids):
        send(pid, signal.SIGCONT)


def kill_all(pid: int, *, keep: frozenset[int] = frozenset(), timeout_s: float = 10.0) -> int:
    """SIGKILL every descendant of `pid` until none is left; returns how many were killed.

    They are stopped first so that none forks away in between. `pid` itself (which must be a subreaper, or a
    namespace's parent, for orphans to stay below it) is left to the caller.
    """
    deadline = time.monotonic() + timeout_s
    killed: set[int] = set()
    num_quiet = 0
    while True:
        tree = [stat.pid for stat in descendants(pid) if stat.pid not in keep]
        num_quiet = 0 if tree else num_quiet + 1
        if num_quiet == _NUM_QUIET or time.monotonic() > deadline:
            return len(killed)
        for victim in tree:
            send(victim, signal.SIGSTOP)
        victims = [stat.pid for stat in descendants(pid) if stat.pid not in keep]
        for victim in victims:
            send(victim, signal.SIGKILL)
        # counted whether or not the signal arrived: the end of a pid namespace's first process ends the others
        killed.update(victims)
        time.sleep(0.002)


def _kib(pid: int, file: str, key: str) -> int:
    for line in (living(pid) / file).read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1])
    return 0


def own_memory_bytes(pids: list[int], *, at_least: int) -> int:
    """Memory of the processes that no file backs: anonymous and shared, by `smaps_rollup` a shared page once.

    That walk holds up the process, so the cheaper sum of resident pages, which counts shared pages several times, is
    returned as it is when it does not reach `at_least` (proc(5)).
    """
    quick = sum(_sum_kib(pid, "status", ("RssAnon", "RssShmem")) for pid in pids) * 1024
    if quick < at_least:
        return quick
    exact = sum(_sum_kib(pid, "smaps_rollup", ("Pss_Anon", "Pss_Shmem")) for pid in pids) * 1024
    # 0: a kernel without these fields, or processes of another user
    return exact or quick


def _sum_kib(pid: int, file: str, keys: tuple[str, ...]) -> int:
    try:
        return sum(_kib(pid, file, key) for key in keys)
    except OSError:
        return 0


def cpu_s(pids: list[int]) -> float:
    """CPU seconds of the processes and of the children that they waited for (proc(5), fields 14 to 17)."""
    ticks = 0
    for pid in pids:
        try:
            text = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        ticks += sum(int(field) for field in text[text.rindex(")") + 2 :].split()[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def memory_gib(pids: list[int]) -> float:
    """Peak-aware memory of the processes, GiB: the sum of each one's PSS plus what its RSS once was above today's.

    PSS counts a shared page once over its sharers. Where another user's PSS is not readable, RSS stands in for it.
    """
    total_kib = 0
    for pid in pids:
        try:
            rss, peak = _kib(pid, "status", "VmRSS"), _kib(pid, "status", "VmHWM")
            try:
                current = _kib(pid, "smaps_rollup", "Pss")
            except PermissionError:
                current = rss
        except (FileNotFoundError, ProcessLookupError):
            continue
        total_kib += current + max(0, peak - rss)
    return total_kib / 2**20


def file_memory_gib(pids: list[int]) -> float:
    """Memory of the processes that files back, GiB: a shared page once over its sharers."""
    return sum(_sum_kib(pid, "smaps_rollup", ("Pss_File",)) for pid in pids) / 2**20
