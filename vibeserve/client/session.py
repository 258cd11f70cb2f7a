"""The parent's side of a load: starts the generator, feeds it, pauses it, and turns its records into replies."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import IO, Any

from vibeserve.client.adapters import get_adapter
from vibeserve.client.arrivals import poisson_arrivals
from vibeserve.client.clock import ActiveClock, ClockPage
from vibeserve.core.nouns import Chunk, LoadPoint, PromptRequest, Reply, Usage
from vibeserve.errors import InfraError

REQUEST_TIMEOUT_S = 600.0
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 20.0
_PIPE_BYTES = 1 << 20
_F_SETPIPE_SZ = 1031


class LoadSession:
    """One load on one server, alive from `start` to `stop`, frozen in between as often as one likes.

    Requests come from `requests` (endless or finite) and go to the generator by pipe; nothing is written to disk.
    Times are active seconds since `start`. Open loop (`load.rate_per_s`): Poisson arrivals drawn from `seed`, in active
    time; latencies count from the scheduled time. `join` wraps the generator's argv so that it runs in the server's
    network namespace; it must exec (same process group) and keep inherited descriptors. `cpus` pins the generator.

    The thread that calls `start` must outlive the session: the generator dies with it.
    """

    def __init__(
        self,
        *,
        base_url: str,
        adapter: str,
        model: str,
        load: LoadPoint,
        requests: Iterator[PromptRequest],
        seed: int = 0,
        cpus: tuple[int, ...] = (),
        join: Callable[[list[str]], list[str]] | None = None,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        name: str = "load",
    ) -> None:
        if (load.concurrency > 0) == (load.rate_per_s > 0):
            raise ValueError(f"load '{load.name}': exactly one of concurrency and rate_per_s must be above 0")
        self.name = name
        self._adapter = get_adapter(adapter).name
        self._base_url = base_url
        self._model = model
        self._load = load
        self._requests = requests
        self._arrivals = poisson_arrivals(load.rate_per_s, seed=seed) if load.rate_per_s > 0 else None
        self._cpus = cpus
        self._join = join or list
        self._request_timeout_s = request_timeout_s
        self._page = ClockPage()
        self._clock = ActiveClock(self._page)
        self._process: subprocess.Popen[bytes] | None = None
        self._sent: list[PromptRequest] = []
        self._lines: list[bytes] = []
        self._threads: list[threading.Thread] = []
        self._is_feed_ended = False
        self._replies: list[Reply] | None = None
        self.generator_cpu_s = 0.0
        """known after `stop`"""

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
            "base_url": self._base_url,
            "adapter": self._adapter,
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
        """InfraError when the generator died, or its stream of requests did."""
        process = self._running()
        code = process.poll()
        if code not in (None, 0):
            raise InfraError(f"load generator '{self.name}' ended with {code}\n{self._log_tail()}")
        if self._threads and not self._threads[0].is_alive() and not self._is_feed_ended:
            raise InfraError(f"load session '{self.name}': its stream of requests failed; the traceback is on stderr")

    def finished(self) -> list[PromptRequest]:
        """Requests that have ended so far, answered or failed, in the order in which they ended."""
        records = [json.loads(line) for line in list(self._lines)]
        return [self._sent[record["n"]] for record in records if "n" in record]

    def wait(self, *, timeout_s: float) -> None:
        """Until every request of a finite stream is answered. InfraError after `timeout_s` seconds of wall time."""
        try:
            self._running().wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise InfraError(
                f"load session '{self.name}': not all requests were answered within {timeout_s:g} s"
            ) from None
        self.check()

    def stop(self) -> list[Reply]:
        """End the load and return every reply, by the time it was sent. What was in flight has error `cut`."""
        if self._replies is None:
            self._end(self._running())
            self._replies = sorted(self._parse(), key=lambda reply: reply.sent_s)
            self._page.close()
            self._log.close()
        return self._replies

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
        stream.write(json.dumps(document).encode() + b"\n")
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
        process = self._running()
        assert process.stdin is not None
        try:
            for request in self._requests:
                if self._arrivals is not None:
                    request = replace(request, arrival_s=next(self._arrivals))
                due_s = request.arrival_s if self._arrivals is not None else None
                self._sent.append(request)
                self._write({"n": len(self._sent) - 1, "due_s": due_s, "request": asdict(request)})
            self._is_feed_ended = True
        except BrokenPipeError:
            self._is_feed_ended = True  # the generator is gone: `check` tells how
        finally:
            with contextlib.suppress(OSError):
                process.stdin.close()

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

    def _parse(self) -> list[Reply]:
        replies = []
        for line in self._lines:
            if not line.endswith(b"\n"):
                break  # the generator was killed in the middle of it
            record = json.loads(line)
            if "n" in record:
                replies.append(_reply_of(record, self._sent[record["n"]]))
            elif record["event"] == "stats":
                self.generator_cpu_s = record["cpu_s"]
        return replies

    def _log_tail(self) -> str:
        self._log.seek(0)
        return "\n".join(self._log.read().decode(errors="replace").splitlines()[-12:])


def _reply_of(record: dict[str, Any], request: PromptRequest) -> Reply:
    usage = record["usage"]
    return Reply(
        request=request,
        scheduled_s=record["scheduled_s"],
        sent_s=record["sent_s"],
        end_s=record["end_s"],
        chunks=tuple(Chunk(at_s=at_s, text=text, token_ids=tuple(ids)) for at_s, text, ids in record["chunks"]),
        finish_reason=record["finish_reason"],
        usage=None if usage is None else Usage(prompt_tokens=usage[0], completion_tokens=usage[1]),
        token_logprobs=tuple(record["logprobs"]),
        error=record["error"],
    )


def sent_lag_s(replies: list[Reply]) -> list[float]:
    """Sent minus scheduled time of every request: how far the generator itself ran behind."""
    return [reply.sent_s - reply.scheduled_s for reply in replies]
