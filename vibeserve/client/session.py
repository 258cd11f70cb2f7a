"""The parent's side of a load: starts the generator, feeds it, pauses it, and rebuilds its records."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import IO, Any

from vibeserve.client.arrivals import Replay, poisson_arrivals
from vibeserve.client.clock import ActiveClock, ClockPage
from vibeserve.client.records import record_reader, request_reader, to_json
from vibeserve.contract import Record, Request
from vibeserve.core.nouns import LoadPoint
from vibeserve.errors import ContractError, InfraError, VibeServeError
from vibeserve.modalities import Bundle

REQUEST_TIMEOUT_S = 600.0
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 20.0
_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031


class LoadSession:
    """One load on one server, alive from `start` to `stop`, frozen in between as often as one likes.

    Requests come from `requests` (endless or finite) and go to the generator by pipe; nothing is written to disk.
    Times are active seconds since `start`. Open loop: Poisson arrivals drawn from `seed` (`load.rate_per_s`), or the
    requests' own `arrival_s` divided by `load.trace_speed`, in active time; latencies count from the scheduled time.
    `join` wraps the generator's argv so that it runs in the server's network namespace; it must exec (same process
    group) and keep inherited descriptors. `cpus` pins the generator. ContractError where the bundle's workload is none,
    or has a REQUEST or RECORD that cannot be sent as JSON.

    The thread that calls `start` must outlive the session: the generator dies with it.
    """

    def __init__(
        self,
        *,
        bundle: Bundle,
        base_url: str,
        dialect: str,
        model: str,
        load: LoadPoint,
        requests: Iterator[Request],
        seed: int = 0,
        cpus: tuple[int, ...] = (),
        join: Callable[[list[str]], list[str]] | None = None,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        name: str = "load",
    ) -> None:
        if [load.concurrency > 0, load.rate_per_s > 0, load.trace_speed > 0].count(True) != 1:
            text = "exactly one of concurrency, rate_per_s and trace_speed must be above 0"
            raise ValueError(f"load '{load.name}': {text}")
        self.name = name
        self._load_id = f"{name}-{secrets.token_hex(4)}"
        self._bundle = bundle
        self._read_record = record_reader(bundle.record_type)
        request_reader(bundle.request_type)  # the generator's; what it cannot rebuild is better known now
        self._base_url = base_url
        self._dialect = dialect
        self._model = model
        self._load = load
        self._requests = requests
        self._arrivals = poisson_arrivals(load.rate_per_s, seed=seed) if load.rate_per_s > 0 else None
        self._replay = Replay(load.trace_speed) if load.trace_speed > 0 else None
        self._cpus = cpus
        self._join = join or list
        self._request_timeout_s = request_timeout_s
        self._page = ClockPage()
        self._clock = ActiveClock(self._page)
        self._process: subprocess.Popen[bytes] | None = None
        self._sent: list[Request] = []
        self._lines: list[bytes] = []
        self._threads: list[threading.Thread] = []
        self._is_feed_ended = False
        self._feed_fault: VibeServeError | None = None
        self._records: list[Record] | None = None
        self.generator_cpu_s = 0.0
        """of the load, without the generator's start; known after `stop`"""

    # -- life

    @property
    def is_started(self) -> bool:
        return self._process is not None

    @property
    def is_paused(self) -> bool:
        return self._clock.is_paused

    def start(self) -> None:
        """Start the generator and the load. InfraError when the generator does not come up."""
        if self._process is not None:
            raise InfraError(f"load session '{self.name}' was started before; a session is used once")
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the session)
        argv = self._join([sys.executable, "-P", "-m", "vibeserve.client.generator"])
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            pass_fds=(self._page.fd,),
            start_new_session=True,
        )
        job = {
            "bundle": self._bundle.ref,
            "base_url": self._base_url,
            "dialect": self._dialect,
            "model": self._model,
            "concurrency": self._load.concurrency,
            "request_timeout_s": self._request_timeout_s,
            "clock_fd": self._page.fd,
            "cpus": self._cpus,
        }
        with contextlib.suppress(BrokenPipeError):  # it ended at once: the next line says why
            self._write(job)
        self._await_ready(self._process)
        self._clock.start()
        self._spawn(self._feed)
        self._spawn(self._collect)

    def pause(self) -> None:
        """Freeze the generator and the active time. Pause it before the server."""
        if self.is_paused:
            return
        process = self._running()
        with contextlib.suppress(ProcessLookupError, ChildProcessError):  # it has ended: `check` tells
            os.killpg(process.pid, signal.SIGSTOP)
            # SIGSTOP is asynchronous: wait until the process stands, or has ended
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        self._clock.pause()

    def resume(self) -> None:
        """Continue the active time and the generator. Resume the server first."""
        if not self.is_paused:
            return
        self._clock.resume()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._running().pid, signal.SIGCONT)

    def active_now_s(self) -> float:
        """Active seconds since `start`; stands still while paused."""
        return self._clock.now_s()

    def mark(self) -> float:
        """The border of a window: the active seconds now. InfraError when the generator has died."""
        self.check()
        return self.active_now_s()

    def check(self) -> None:
        """InfraError when the generator died, or its stream of requests did; ContractError when that is a fault of the
        target's own file."""
        process = self._running()
        code = process.poll()
        if code not in (None, 0):
            raise InfraError(f"load generator '{self.name}' ended with {code}\n{self._log_tail()}")
        if self._feed_fault is not None:
            text = f"load session '{self.name}': its stream of requests failed: {self._feed_fault}"
            raise ContractError(text) from self._feed_fault
        if self._threads and not self._threads[0].is_alive() and not self._is_feed_ended:
            raise InfraError(f"load session '{self.name}': its stream of requests failed; the traceback is on stderr")

    def finished(self) -> list[Request]:
        """Requests that have ended so far, answered or failed, in the order in which they ended."""
        numbers = [_number_of(line) for line in list(self._lines)]
        return [self._sent[number] for number in numbers if number is not None]

    def wait(self, *, timeout_s: float) -> None:
        """Until every request of a finite stream is answered. InfraError after `timeout_s` seconds of wall time."""
        try:
            self._running().wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise InfraError(
                f"load session '{self.name}': not all requests were answered within {timeout_s:g} s"
            ) from None
        self.check()

    def stop(self) -> list[Record]:
        """End the load and return every record, by the time it was sent. What was in flight has error `cut`."""
        if self._records is None:
            self._end(self._running())
            self._records = sorted(self._parse(), key=lambda record: record.sent_s)
            self._page.close()
            self._log.close()
        return self._records

    # -- inside

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise InfraError(f"load session '{self.name}' is not started")
        return self._process

    def _spawn(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target, name=f"{self.name}-{target.__name__.strip('_')}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _write(self, document: dict[str, Any]) -> None:
        stream = self._running().stdin
        assert stream is not None
        stream.write(to_json(document))
        stream.flush()

    def _await_ready(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        if sys.platform == "linux":
            import fcntl

            with contextlib.suppress(OSError):  # beyond the user's pipe quota: the default size works as well
                fcntl.fcntl(process.stdout, _F_SETPIPE_SZ, _PIPE_BYTES)
        killer = threading.Timer(START_TIMEOUT_S, process.kill)
        killer.start()
        line = process.stdout.readline()
        killer.cancel()
        if not line:
            code = process.wait()
            raise InfraError(f"load generator '{self.name}' did not start (exit {code})\n{self._log_tail()}")

    def _feed(self) -> None:
        """Thread: hand over requests as fast as the generator takes them. It ends with the stream or the generator."""
        stdin = self._running().stdin
        assert stdin is not None
        try:
            while (line := self._next_line()) is not None:
                stdin.write(line)
                stdin.flush()
            self._is_feed_ended = True
        except BrokenPipeError:
            self._is_feed_ended = True  # the generator is gone: `check` tells how
        except VibeServeError as error:
            self._feed_fault = error
        finally:
            with contextlib.suppress(OSError):
                stdin.close()

    def _next_line(self) -> bytes | None:
        """The next request as the generator reads it, None at the end of the stream."""
        with self._bundle.blamed("workload"):
            request = next(self._requests, None)
        if request is None:
            return None
        if not isinstance(request, self._bundle.request_type):
            wanted = self._bundle.request_type.__name__
            raise ContractError(f"requests() gave {type(request).__name__}, not {wanted}", hint="docs/contract.md")
        due_s: float | None = None
        if self._arrivals is not None:
            due_s = next(self._arrivals)
            request = replace(request, arrival_s=due_s)
        elif self._replay is not None:
            due_s = self._replay.due_s(request)
        self._sent.append(request)
        with self._bundle.blamed("workload"):
            return to_json({"n": len(self._sent) - 1, "due_s": due_s, "request": request})

    def _collect(self) -> None:
        """Thread: keep the records as they come; reading them can wait until the load has ended."""
        stream = self._running().stdout
        assert stream is not None
        self._lines.extend(stream)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            self.resume()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for thread in self._threads:
            thread.join(STOP_TIMEOUT_S)
        if process.stdout is not None:
            process.stdout.close()

    def _parse(self) -> list[Record]:
        records = []
        for line in self._lines:
            if not line.endswith(b"\n"):
                break  # the generator was killed in the middle of it
            document = json.loads(line)
            if "n" in document:
                records.append(self._rebuilt(document))
            elif document["event"] == "stats":
                self.generator_cpu_s = document["cpu_s"]
        return records

    def _rebuilt(self, document: dict[str, Any]) -> Record:
        harness = {name: document[name] for name in ("scheduled_s", "sent_s", "end_s", "error")}
        harness |= {"request": self._sent[document["n"]], "load_id": self._load_id}
        try:
            return self._read_record(document["record"], **harness)
        except TypeError as error:
            text = f"send returned a {self._bundle.record_type.__name__} that is none: {error}"
            return self._read_record({}, **(harness | {"error": harness["error"] or text}))

    def _log_tail(self) -> str:
        self._log.seek(0)
        return "\n".join(self._log.read().decode(errors="replace").splitlines()[-12:])


def _number_of(line: bytes) -> int | None:
    """Number of the request that a line of the generator reports; replies may be large, so only its head is read."""
    prefix = b'{"n":'
    return int(line[len(prefix) : line.index(b",")]) if line.startswith(prefix) else None


def sent_lag_s(records: Sequence[Record]) -> list[float]:
    """Sent minus scheduled time of every request: how far the generator itself ran behind."""
    return [record.sent_s - record.scheduled_s for record in records]
