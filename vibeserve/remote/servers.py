"""A server and a load on another machine, as the controller holds them: what `Server` and `LoadSession` are here."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vibeserve.client import LoadSession
from vibeserve.contract import Record, Request
from vibeserve.core.documents import from_data, to_data
from vibeserve.core.nouns import LoadPoint
from vibeserve.core.spent import Spent
from vibeserve.errors import InfraError, ServerError
from vibeserve.hosts.connection import HostLostError
from vibeserve.hosts.piped import PipedHost
from vibeserve.modalities import Bundle
from vibeserve.remote.relay import LINES, NEAR
from vibeserve.sandbox import Leftover
from vibeserve.service.server import UNCOUNTED

NEAR_END = Path(__file__).with_name("relay.py")


@dataclass(kw_only=True)
class RemoteServer:
    """See `service.Server`. `base_url` is a port of this machine that leads into the server's network."""

    name: str
    host: PipedHost
    handle: str
    startup_s: float
    forward: Forward
    process: Any = None
    leftovers: tuple[Leftover, ...] | None = None
    spent: Spent = field(default_factory=Spent)
    _tail: str = ""
    _is_stopped: bool = False

    @property
    def base_url(self) -> str:
        return self.forward.url

    def poll(self) -> int | None:
        if self._is_stopped:
            return 0
        status = self._state()["status"]
        return None if status is None else int(status)

    @property
    def outcome(self) -> str:
        return str(self._state()["outcome"])

    def log_tail(self) -> str:
        return self._tail if self._is_stopped else str(self._state()["log_tail"])

    def pause(self) -> None:
        self.host.call("pause", server=self.handle)

    def resume(self) -> None:
        """ServerError (`runs_when_stopped`) when it did not stand still."""
        self.host.call("resume", server=self.handle)

    def cpu_s(self) -> float:
        return float(self._usage()["cpu_s"])

    def cpu_by_process(self) -> dict[int, float]:
        found: dict[str, float] = self._usage()["by_process"]
        return {int(pid): seconds for pid, seconds in found.items()}

    def peak_memory_gib(self) -> float:
        return float(self._usage()["peak_memory_gib"])

    def check_counted(self, *, cpu_s: float) -> None:
        if self.cpu_s() <= cpu_s or self.peak_memory_gib() <= 0:
            detail = "it served, and its processes show no CPU time or no memory: what serves is not what is measured"
            raise ServerError(self.name, outcome=UNCOUNTED, detail=detail, log_tail=self.log_tail())

    def stop(self, *, drain_s: float = 10.0) -> bool:
        """End it. What cannot be reached any more has been ended there."""
        self.forward.close()
        if self._is_stopped:
            return True
        try:
            with self.spent.on("stop"):
                told = self.host.call("stop", server=self.handle, drain_s=drain_s)
        except HostLostError:
            self._is_stopped = True
            return False
        self._is_stopped, self._tail = True, told["log_tail"]
        self.leftovers = tuple(from_data(Leftover, each) for each in told["leftovers"] or ())
        return bool(told["drained"])

    def _state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.host.call("server_state", server=self.handle)
        return found

    def _usage(self) -> dict[str, Any]:
        found: dict[str, Any] = self.host.call("usage", server=self.handle)
        return found


class Forward:
    """A TCP port of this machine's loopback; every connection to it is one into the network of a process there.

    Nothing timed goes through it: probes and GETs do.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = list(argv)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._children: list[subprocess.Popen[bytes]] = []
        threading.Thread(target=self._accept, name="forward", daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for child in self._children:
            if child.poll() is None:
                child.kill()
            child.wait()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = self._listener.accept()
                with connection:
                    # the relay owns the connection: its standard input and output
                    both = connection.fileno()
                    child = subprocess.Popen(
                        self._argv, stdin=both, stdout=both, stderr=subprocess.DEVNULL, process_group=0
                    )
                self._children = [each for each in self._children if each.poll() is None] + [child]


class RemoteLoad(LoadSession):
    """See `LoadSession`. The generator and its clock are on the host; requests and records go by the connection."""

    def __init__(
        self, *, server: RemoteServer, bundle: Bundle, dialect: str, model: str, load: LoadPoint,
        requests: Iterator[Request], seed: int, cpus: Sequence[int], name: str,
    ) -> None:  # fmt: skip
        super().__init__(
            bundle=bundle, base_url="", dialect=dialect, model=model, load=load, requests=requests, seed=seed,
            cpus=tuple(cpus), name=name,
        )  # fmt: skip
        self._server = server
        self._is_paused_there = False
        self._has_begun = False
        self._feeding = threading.Lock()
        self._taking = threading.Lock()

    @property
    def is_started(self) -> bool:
        return self._has_begun

    @property
    def is_paused(self) -> bool:
        return self._is_paused_there

    def start(self) -> None:
        if self._has_begun:
            raise InfraError(f"load session '{self.name}' was started before; a session is used once")
        job = {
            "bundle": self._server.host.there(to_data(self._bundle.ref)), "dialect": self._dialect,
            "model": self._model,
            "concurrency": self._load.concurrency, "request_timeout_s": self._request_timeout_s,
            "rate_per_s": self._load.rate_per_s or self._load.trace_speed, "cpus": list(self._cpus),
        }  # fmt: skip
        self._has_begun = True
        self._call("load_start", server=self._server.handle, job=job)

    def give(self) -> None:
        """One more request: the generator asks for it."""
        with self._feeding:
            line = self._next_line()
            self._is_feed_ended = self._is_feed_ended or line is None
            self._call("load_feed", line=None if line is None else line.decode())

    def pause(self) -> None:
        if not self._is_paused_there:
            self._call("load_pause")
            self._is_paused_there = True

    def resume(self) -> None:
        if self._is_paused_there:
            self._call("load_resume")
            self._is_paused_there = False

    def active_now_s(self) -> float:
        return float(self._call("load_now"))

    def mark(self) -> float:
        return self.active_now_s()

    def check(self) -> None:
        self._call("load_now")

    def finished(self) -> list[Request]:
        self._take("load_lines")
        return super().finished()

    def wait(self, *, timeout_s: float) -> None:
        self._call("load_wait", timeout_s=timeout_s)

    def stop(self) -> list[Record]:
        if self._records is None:
            self._take("load_stop")
            self._records = sorted(self._parse(), key=lambda record: record.sent_s)
            self._page.close()
        return self._records

    def _take(self, method: str) -> None:
        """What was reported since; a stream of requests may look at the same time as whoever waits for its end."""
        with self._taking:
            found = self._call(method, start=len(self._lines))
            self._lines.extend(line.encode() for line in found)

    def _call(self, method: str, **given: Any) -> Any:
        return self._server.host.call(method, load=self._load_id, **given)

    @property
    def load_id(self) -> str:
        return self._load_id


def relay_argv(host: PipedHost, *, network_pid: int | None, port: int, framework: str, python: str) -> list[str]:
    """The local command that connects its pipes with a port in a network there. It ends with its connection, and, where
    there is a near end, with its controller's thread."""
    join = f"{framework}/vibeserve/sandbox/join.py"
    relay = f"{framework}/vibeserve/remote/relay.py"
    mode = f" {LINES}" if host.is_line_buffered else ""
    script = f'exec "$0" -I -S "$1" {network_pid or 0} - $PPID -- "$0" -I -S "$2" {port}{mode}'
    argv = host.child_argv(["sh", "-c", script, python, join, relay])
    return [sys.executable, "-I", "-S", str(NEAR_END), NEAR, *argv] if host.is_line_buffered else argv

