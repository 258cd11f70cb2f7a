"""A process that holds something, described so that nobody mistakes a later process for it."""

from __future__ import annotations

import os
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from vibeserve.sandbox import tree

_MAX_COMMAND = 200


@dataclass(frozen=True, kw_only=True)
class Owner:
    """Document: pid with the facts that make it unique, and what it does for whom."""

    pid: int
    start_ticks: int
    """when the process was started, in clock ticks after the boot: a later one with the same pid has another value"""
    boot_id: str
    pid_namespace: str
    """pids mean something inside it only"""
    host: str
    since_s: float
    """seconds since the epoch"""
    run: str
    command: str
    schema_version: int = 1

    @classmethod
    def of(cls, pid: int, *, run: str, command: str) -> Owner:
        """The live process `pid` of this machine. A process that is gone already has start_ticks -1."""
        stat = tree.read_stat(pid)
        return cls(
            pid=pid, start_ticks=stat.start_ticks if stat else -1, boot_id=tree.boot_id(),
            pid_namespace=_pid_namespace(), host=socket.gethostname(), since_s=time.time(), run=run,
            command=command[:_MAX_COMMAND],
        )  # fmt: skip

    @classmethod
    def myself(cls, *, run: str) -> Owner:
        """This process."""
        words = [Path(sys.argv[0]).name, *sys.argv[1:]]
        return cls.of(os.getpid(), run=run, command=" ".join(words))

    @property
    def is_local(self) -> bool:
        """Its pid can be looked up from here."""
        return self.boot_id == tree.boot_id() and self.pid_namespace == _pid_namespace()

    @property
    def is_alive(self) -> bool:
        """Known to run. False also where that cannot be told from here."""
        return self.is_local and tree.is_alive(self.pid, start_ticks=self.start_ticks)

    @property
    def is_gone(self) -> bool:
        """Known not to run any more: dead here, or of an earlier boot of this machine. False where that cannot be
        told."""
        if self.is_local:
            return not self.is_alive
        return self.host == socket.gethostname() and self.boot_id != tree.boot_id()

    @property
    def is_elsewhere(self) -> bool:
        """On another machine: neither its pid nor its locks can be looked up from here. A container of this machine is
        not, whatever its host's name."""
        return self.boot_id != tree.boot_id() and self.host != socket.gethostname()

    def __str__(self) -> str:
        where = "" if self.host == socket.gethostname() else f" on {self.host}"
        return f"run {self.run}, pid {self.pid}{where}, since {clock_text(self.since_s)}"


def clock_text(at_s: float) -> str:
    """`12:03`, or `2026-11-30 12:03` of another day, in local time."""
    then, now = time.localtime(at_s), time.localtime()
    is_today = then[:3] == now[:3]
    return time.strftime("%H:%M" if is_today else "%Y-%m-%d %H:%M", then)


def _pid_namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())
