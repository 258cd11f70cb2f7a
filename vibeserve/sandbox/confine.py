"""The supervisor of tiers B and C: a child program that confines one command and holds its whole tree.

Its standard input is one JSON document (`Confinement`). It becomes a subreaper, so that daemons stay below it; forks;
confines the child (affinity, limits, no capabilities, Landlock, seccomp) and executes the command. It exits with the
command's status (128 + signal), and takes the whole tree with it on SIGTERM, on its parent's death, and at the end.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve.sandbox.tree import kill_all

if TYPE_CHECKING:
    from vibeserve.sandbox.connects import Broker

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 36, 24, 38
_CANNOT_CONFINE = 125
_OOM_SCORE = 500
"""of -1000 to 1000; the controller keeps its own, usually 0"""
_AWAITED = {signal.SIGTERM, signal.SIGCHLD}


@dataclass(frozen=True, kw_only=True)
class Confinement:
    argv: list[str]
    env: dict[str, str]
    workdir: str
    parent: int
    """pid of the controller: its death, also before this program is up, ends the tree"""
    cpus: list[int]
    limits: dict[str, int]
    """names of `resource.RLIMIT_*` without the prefix"""
    is_walled: bool
    read_only: list[str]
    list_only: list[str]
    writable: list[str]
    bind_ports: list[int] | None
    local_sockets: bool
    connect_ports: list[int]
    """on 127.0.0.1; these and `connect_sockets` are all that may be connected to"""
    connect_sockets: list[str]
    groups: list[str]
    """folders of control groups that the command is in, and the supervisor is not: it is never stopped"""
    is_measured: bool


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _drop_capabilities() -> None:
    """Empty the bounding, permitted, effective and inheritable sets (capset(2), version 3)."""
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in range(64):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    libc.capset(header, (ctypes.c_uint32 * 6)())


def _set_limits(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))


def kill_me_first(pid: int) -> None:
    """Where the machine itself runs out of memory the kernel ends this process before others (proc(5)). What a
    privileged caller writes the inside cannot take back."""
    file = Path(f"/proc/{pid}/oom_score_adj")
    # an order of victims, not a limit: where /proc is read-only the kernel chooses by size
    with contextlib.suppress(PermissionError):
        file.write_text(str(max(int(file.read_text(encoding="ascii")), _OOM_SCORE)), encoding="ascii")


def confine(task: Confinement, broker: Broker | None) -> None:
    """Give up, in this order, what the next step does not need any more."""
    from vibeserve.sandbox import landlock, seccomp

    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    for folder in task.groups:
        Path(folder, "cgroup.procs").write_text("0", encoding="ascii")
    if task.cpus:
        os.sched_setaffinity(0, task.cpus)
    _set_limits(task.limits)
    kill_me_first(os.getpid())
    os.chdir(task.workdir)
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    if not task.is_walled:
        return
    _drop_capabilities()
    # its own /proc folder only: other processes' command lines and environments stay closed
    own = [f"/proc/{os.getpid()}"]
    landlock.restrict(
        read_only=[*task.read_only, *own], list_only=task.list_only, writable=task.writable, bind_ports=task.bind_ports
    )
    is_scoped = landlock.abi() >= landlock.ABI_SCOPES
    program = seccomp.program(
        own_namespaces=False, local_sockets=task.local_sockets, signals_scoped=is_scoped,
        asks_connects=broker is not None, is_measured=task.is_measured,
    )  # fmt: skip
    if broker is None:
        seccomp.load(program)
    else:
        broker.load(program)


def default_signals() -> None:
    """In a forked child: ignore nothing. The interpreter ignores SIGPIPE and SIGXFSZ, `nohup` SIGHUP, a shell's `&`
    SIGINT and SIGQUIT, and a command would inherit all that."""
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _execute(task: Confinement, broker: Broker | None) -> None:
    """In the forked child: never returns."""
    default_signals()
    try:
        os.setsid()
        confine(task, broker)
        os.execvpe(task.argv[0], task.argv, task.env)
    except OSError as error:
        os.write(2, f"wall: cannot start {task.argv[0]}: {error}\n".encode())
    os._exit(_CANNOT_CONFINE)


def _supervise(child: int) -> int:
    """Reap everything until `child` ends or SIGTERM comes; the exit status in the shell's form.

    Both signals are blocked and taken one at a time: on the controller's death SIGTERM comes once for each of its
    threads that ends, and nothing may interrupt the killing.
    """
    while signal.sigwait(_AWAITED) == signal.SIGCHLD:
        # one SIGCHLD may stand for several ends
        while (ended := _reap()) is not None:
            pid, status = ended
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code
    return 128 + signal.SIGTERM


def _reap() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid != 0 else None


def _make_broker(task: Confinement) -> Broker | None:
    """Who makes the connections of the inside; None where it may make none."""
    if not (task.is_walled and (task.connect_ports or task.connect_sockets)):
        return None
    from vibeserve.sandbox.connects import Broker, Destinations

    return Broker(Destinations(ports=tuple(task.connect_ports), sockets=tuple(task.connect_sockets)))


def main() -> None:
    """Run the command of the document on standard input."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    data = json.load(sys.stdin)
    task = Confinement(**{item.name: data[item.name] for item in fields(Confinement)})
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if os.getppid() != task.parent:
        os._exit(128 + signal.SIGTERM)
    broker = _make_broker(task)
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
        _execute(task, broker)
    if broker is not None:
        broker.serve_in_thread()
    code = _supervise(child)
    kill_all(os.getpid())
    os._exit(code)


if __name__ == "__main__":
    main()
