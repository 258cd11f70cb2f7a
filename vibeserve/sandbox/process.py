"""A walled process tree as the controller holds it, and how one is started in each tier."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vibeserve.core.environment import PROCESSES
from vibeserve.errors import InfraError
from vibeserve.sandbox import standstill, tree
from vibeserve.sandbox.cgroups import SIGNAL, Cgroup
from vibeserve.sandbox.guard import Guard
from vibeserve.sandbox.resources import GIB, Exceeded
from vibeserve.spec import Tier

_LOG_TAIL_BYTES = 8192
_KILL_TIMEOUT_S = 10.0
BOTH = "processes and control group"


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A bounded command that ended, or was ended."""

    returncode: int
    """the command's own status, or 128 + the signal that ended it"""
    timed_out: bool
    seconds: float
    log_tail: str
    exceeded: Exceeded | None = None
    """the limit that it ran into, if any"""


@dataclass(kw_only=True)
class Process:
    """One process tree behind a wall. `pid` is the outer process: bubblewrap's monitor or our own supervisor."""

    pid: int
    network_pid: int | None
    """host pid of a process in the tree's own network namespace; None when it uses the host's"""
    tier: Tier
    log: Path
    start_ticks: int
    tree_id: str
    popen: subprocess.Popen[bytes] = field(repr=False)
    keepers: frozenset[int]
    """outer processes that hold the tree and run nothing of it; never stopped"""
    cgroup: Cgroup
    guard: Guard = field(repr=False)
    scratch: Path | None = None
    """folder of ours that goes with the process"""
    strays: int = 0
    """processes that had escaped from the tree, found and killed by `kill_tree`"""
    moved: str = ""
    """why it was killed: what it did while it was stopped"""
    peak_gib: float = 0.0
    _exceeded: Exceeded | None = field(default=None, repr=False)
    _stood: standstill.Standstill | None = field(default=None, repr=False)
    _paused: list[int] = field(default_factory=list, repr=False)
    """stopped by signals"""

    def poll(self) -> int | None:
        """Exit status, or None while it runs."""
        return self.popen.poll()

    def wait(self, timeout_s: float) -> int | None:
        """Exit status, or None when it still runs after `timeout_s` seconds."""
        try:
            return self.popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def descendants(self) -> list[int]:
        """Host pids of every live process inside, parents first; keepers left out."""
        return [stat.pid for stat in tree.descendants(self.pid) if stat.pid not in self.keepers]

    @property
    def stopped_by(self) -> str:
        """What stops the tree: its control group's freezer, or SIGSTOP."""
        return self.cgroup.stopped_by

    def pause(self) -> None:
        """Stop every thread inside, of those forked meanwhile too. What is stopped, or dead, is left as it is."""
        if self.is_paused or self.poll() is not None:
            return
        if not self.cgroup.freeze():
            self._paused = tree.stop_all(self.pid, keep=self.keepers)
        self._stood = standstill.stand(self._stoppable(), self.cgroup, stopped_by=self.stopped_by)

    def resume(self) -> None:
        """Let it go on. One that did not stand still since `pause` is killed, and `moved` says why."""
        if self._stood is None:
            return
        stood, self._stood = self._stood, None
        if self.poll() is None:
            self.moved = self._look(stood)
        if self.moved:
            self.kill_tree()
            return
        self._go_on()

    def _look(self, stood: standstill.Standstill) -> str:
        # whatever hops from process to process is in some listings only
        looks = 1 if stood.stopped_by != SIGNAL else standstill.NUM_LOOKS
        found = (standstill.moved(stood, self._stoppable(), self.cgroup) for _ in range(looks))
        return next((text for text in found if text), "")

    def _go_on(self) -> None:
        """SIGCONT in the reverse order of the stops, or the freezer's thaw."""
        self.cgroup.thaw()
        tree.continue_all(self._paused)
        self._paused = []

    def _stoppable(self) -> list[int]:
        """What `pause` stops: the tree, and what else its groups hold."""
        inside = {*self.descendants(), *filter(tree.is_running, self.cgroup.members())}
        return sorted(inside - self.keepers)

    @property
    def is_paused(self) -> bool:
        return self._stood is not None

    def terminate(self) -> None:
        """SIGTERM to the command itself (and to daemons it left), not to its children, so that it may drain."""
        self.resume()
        for stat in tree.descendants(self.pid):
            if stat.parent in self.keepers | {self.pid} and stat.pid not in self.keepers:
                tree.send(stat.pid, signal.SIGTERM)

    def cpu_s(self) -> float:
        """CPU seconds of the tree: of all that was ever inside by its group's count, else of its live processes and of
        what they waited for."""
        counted = self.cgroup.cpu_s()
        return tree.cpu_s(self.descendants()) if counted is None else counted

    def cpu_by_process(self) -> dict[int, float]:
        """CPU seconds of each live process inside, by its host pid, without what it waited for."""
        return {pid: standstill.cpu_s_of(pid) for pid in self.descendants()}

    def rss_gib(self) -> float:
        """Highest memory of the tree seen so far, GiB; takes a sample now. See `memory_counted_by`."""
        pids = self.descendants()
        self.peak_gib = max(self.peak_gib, tree.memory_gib(pids))
        if self.cgroup.memory is not None:
            own_bytes = max(self.guard.peak_own_bytes, self.cgroup.own_bytes())
            self.peak_gib = max(self.peak_gib, own_bytes / GIB + tree.file_memory_gib(pids))
        return self.peak_gib

    @property
    def memory_counted_by(self) -> str:
        """`processes`: what they map. `processes and control group`: also what none of them maps, such as a memfd."""
        return PROCESSES if self.cgroup.memory is None else BOTH

    @property
    def exceeded(self) -> Exceeded | None:
        """The limit that the tree ran into so far, if any."""
        return self._exceeded or self.guard.exceeded or self.cgroup.exceeded()

    def kill_tree(self) -> None:
        """SIGKILL everything and wait for the end, so that nothing of it writes any more. Safe to call again.

        Raises InfraError when something survives.
        """
        self.guard.stop()
        if self.popen.poll() is None:
            # also what is frozen, or in no listing
            self.cgroup.kill(timeout_s=_KILL_TIMEOUT_S)
            self._kill_inside()
            for keeper in (*self.keepers, self.pid):
                tree.send(keeper, signal.SIGKILL)
            if self.wait(_KILL_TIMEOUT_S) is None:
                raise _survivors([self.pid])
        self._paused, self._stood = [], None
        self._end_strays()
        self._exceeded = self.exceeded
        self.cgroup.remove()
        if self.scratch is not None:
            _remove_tree(self.scratch)
            self.scratch = None

    def _kill_inside(self) -> None:
        """Again and again, because the outer process may be about to start the first one inside."""
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        tree.kill_all(self.pid, keep=self.keepers, timeout_s=_KILL_TIMEOUT_S)
        while left := self.descendants():
            if time.monotonic() > deadline:
                raise _survivors(left)
            tree.kill_all(self.pid, keep=self.keepers, timeout_s=_KILL_TIMEOUT_S)

    def _end_strays(self) -> None:
        """Kill what does not descend from the outer process any more, because that was killed: known by its group, or
        by the tree's id in its environment."""
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        found: set[int] = set()
        while pids := self._left():
            if time.monotonic() > deadline:
                raise _survivors(pids)
            self.cgroup.kill(timeout_s=0.1)
            for pid in pids:
                tree.send(pid, signal.SIGKILL)
            found.update(pids)
            time.sleep(0.002)
        # a pid namespace goes with its first process, only a little later than that
        self.strays += 0 if self.tier is Tier.A else len(found)

    def _left(self) -> list[int]:
        members = [pid for pid in self.cgroup.members() if tree.is_running(pid)]
        return members if self.tier is Tier.A else sorted({*members, *tree.marked(self.tree_id)})

    def log_tail(self) -> str:
        """The last lines that this process wrote to the log."""
        return read_tail(self.log)


def _survivors(pids: list[int]) -> InfraError:
    return InfraError(f"processes {pids} survive SIGKILL\nnext: look at what they wait for (/proc/PID/stack)")


def _remove_tree(folder: Path) -> None:
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def read_tail(log: Path) -> str:
    """Last 8 KiB of a log as text; empty when there is none."""
    if not log.is_file():
        return ""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
        return stream.read().decode("utf-8", errors="replace").rstrip("\n")


def finish(process: Process, *, timeout_s: float) -> Finished:
    """Wait for a process at most `timeout_s` seconds, then end its whole tree."""
    start = time.monotonic()
    try:
        code = process.wait(timeout_s)
    finally:
        process.kill_tree()
    seconds = time.monotonic() - start
    return Finished(
        returncode=process.popen.returncode if code is None else code,
        timed_out=code is None,
        seconds=seconds,
        log_tail=process.log_tail(),
        exceeded=process.exceeded,
    )


def join_argv(process: Process, argv: Sequence[str], *, cpus: Sequence[int] = ()) -> list[str]:
    """Command line that runs `argv`, a child of ours, inside the network of `process` and on `cpus`.

    The child keeps our mount namespace and is not walled. Without an own network namespace only the CPUs are set. It is
    started by this process, and killed when the thread that starts it ends.
    """
    script = Path(__file__).with_name("join.py")
    where = "0" if process.network_pid is None else str(process.network_pid)
    on = ",".join(str(cpu) for cpu in cpus) or "-"
    return [sys.executable, "-I", "-S", str(script), where, on, str(os.getpid()), "--", *argv]


def start_ticks_of(pid: int) -> int:
    stat = tree.read_stat(pid)
    if stat is None:
        raise InfraError(f"process {pid} vanished while it was being started")
    return stat.start_ticks


def open_log(log: Path) -> int:
    """Descriptor of a new log. An earlier one is kept under another name: the inside may read what it writes to, and
    would hand itself notes from one start to the next."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if log.exists():
        numbers = itertools.count(1)
        log.rename(next(old for number in numbers if not (old := log.with_suffix(f".{number}{log.suffix}")).exists()))
    return os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o644)
