"""The load generator: a child process that sends requests and reports raw replies (`python -m
vibeserve.client.generator`).

stdin: the job as one JSON line, then one line per request (`{"n", "due_s", "request"}`), until end of file.
stdout: `{"event": "ready"}`, one line per finished request (`{"n", "scheduled_s", "sent_s", "end_s", "error",
"record"}`), and `{"event": "stats"}` at the end, as JSON. What the workload's code prints goes to stderr.
SIGTERM: what is in flight is reported with error `cut`, then the process ends.

What is sent is the bundle's affair: its workload's `send`, with a session per request (`vibeserve.client.sending`). It
runs on the client's cores inside the server's network namespace, and holds no more prompts than it is about to send.
All times it reports are active seconds of the session (`vibeserve.client.clock`).
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import resource
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import uvloop

from vibeserve.client.clock import ClockPage
from vibeserve.client.records import request_reader, to_json
from vibeserve.client.sending import Endpoint, Flight, RequestSession, record_line, source_of
from vibeserve.contract import CUT
from vibeserve.core.documents import from_data
from vibeserve.errors import SpecError
from vibeserve.modalities import BundleRef, open_bundle

Emit = Callable[[bytes], None]

DRAIN_S = 3.0
"""for everything in flight to end once the load has, above `sending.GRACE_S`"""
FAILURE_BACKOFF_S = 0.05  # a closed loop must not spin against a server that refuses everything
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, kw_only=True)
class Job:
    bundle: BundleRef
    base_url: str
    dialect: str
    model: str
    concurrency: int
    """0 = open loop: every request has its `due_s`"""
    request_timeout_s: float
    clock_fd: int
    cpus: tuple[int, ...]
    """empty = keep the affinity that the parent or the join gave"""


class Feed(asyncio.Protocol):
    """Requests from the parent, read only as far ahead as is needed: an unread pipe holds the parent back."""

    def __init__(self, high_water: int) -> None:
        self._high_water = high_water
        self._lines: deque[bytes] = deque()
        self._tail = b""
        self._changed = asyncio.Event()
        self._is_ended = False
        self._is_held = False
        self._transport: asyncio.ReadTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.ReadTransport", transport)

    def data_received(self, data: bytes) -> None:
        *lines, self._tail = (self._tail + data).split(b"\n")
        self._lines.extend(lines)
        self._changed.set()
        if len(self._lines) >= self._high_water and not self._is_held and self._transport is not None:
            self._is_held = True
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_ended = True
        self._changed.set()

    async def next(self) -> dict[str, Any] | None:
        """The next request line, or None at the end of the stream."""
        while not self._lines:
            if self._is_ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        line = self._lines.popleft()
        if len(self._lines) < self._high_water and self._is_held and self._transport is not None:
            self._is_held = False
            self._transport.resume_reading()
        document: dict[str, Any] = json.loads(line)
        return document


class Generator:
    """Keeps the load up until the requests end or SIGTERM comes."""

    def __init__(self, job: Job, feed: Feed, clock: ClockPage, *, emit: Emit) -> None:
        self._job = job
        self._feed = feed
        self._emit = emit
        self._now_s = clock.now_s
        bundle = open_bundle(job.bundle)
        self._workload = bundle.workload
        self._source = source_of(bundle)
        self._read_request = request_reader(bundle.request_type)
        self._record_type = bundle.record_type
        self._endpoint = Endpoint(base_url=job.base_url, model=job.model, dialect=job.dialect)
        self._in_flight: dict[Flight, tuple[int, float]] = {}
        """flight -> number of its request, when it was due"""
        self._unwritten: deque[Callable[[], bytes]] = deque()
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        if self._job.concurrency:
            await asyncio.gather(*(self._closed_loop() for _ in range(self._job.concurrency)))
        else:
            await self._open_loop()

    def cut(self) -> None:
        """End everything in flight; the tasks report what they have."""
        self._stopping.set()
        for flight in list(self._in_flight):
            flight.end(CUT)

    async def drain(self) -> None:
        """Until everything in flight has ended. What does not end is given up and reported without a reply."""
        deadline_s = time.monotonic() + DRAIN_S
        while self._in_flight and time.monotonic() < deadline_s:
            await asyncio.sleep(0.001)
        for flight in list(self._in_flight):
            self._report(flight)

    def flush(self) -> None:
        """Write what is not written yet."""
        while self._unwritten:
            self._emit(self._unwritten.popleft()())

    async def _closed_loop(self) -> None:
        free_s: float | None = None  # a request is due when its place becomes free, however late the parent feeds it
        while not self._stopping.is_set() and (line := await self._feed.next()) is not None:
            error = await self._serve(line, scheduled_s=self._now_s() if free_s is None else free_s)
            if error is not None and not self._stopping.is_set():
                await asyncio.sleep(FAILURE_BACKOFF_S)
            free_s = self._now_s()

    async def _open_loop(self) -> None:
        running: set[asyncio.Task[str | None]] = set()
        while not self._stopping.is_set() and (line := await self._feed.next()) is not None:
            # after a SIGSTOP the timer fires at once, the active clock says that it is early: sleep on
            while (wait_s := line["due_s"] - self._now_s()) > 0 and not self._stopping.is_set():
                await asyncio.sleep(wait_s)
            if self._stopping.is_set():
                break
            task = asyncio.create_task(self._serve(line, scheduled_s=line["due_s"]))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.gather(*running)

    async def _serve(self, line: dict[str, Any], *, scheduled_s: float) -> str | None:
        session = RequestSession(self._endpoint, now_s=self._now_s)
        flight = Flight(self._read_request(line["request"]), session, limit_s=self._job.request_timeout_s)
        self._in_flight[flight] = (line["n"], scheduled_s)
        await flight.fly(self._workload)
        return self._report(flight) if flight in self._in_flight else CUT

    def _report(self, flight: Flight) -> str | None:
        """The request's error. Its record is written later, one in a turn of the loop: others' bytes are waiting."""
        number, scheduled_s = self._in_flight.pop(flight)
        record, error = flight.outcome(self._record_type, source=self._source)
        times = flight.times(scheduled_s=scheduled_s)
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._write_next)
        self._unwritten.append(partial(record_line, number, record, times=times, error=error, source=self._source))
        return error

    def _write_next(self) -> None:
        if self._unwritten:
            self._emit(self._unwritten.popleft()())
        if self._unwritten:
            asyncio.get_running_loop().call_soon(self._write_next)


def _private_stdout() -> Emit:
    """The records' pipe. Whatever else in this process prints, prints to the log."""
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def emit(line: bytes) -> None:
        stream.write(line)
        stream.flush()

    return emit


def _read_job() -> Job:
    """The first line of stdin, byte by byte: what follows belongs to the feed."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            raise SystemExit("generator: no job on stdin")
        line += byte
    return from_data(Job, json.loads(line))


def _prepare_process(job: Job) -> None:
    """Die with the parent (also when stopped), sit on the client's cores, allow a connection per request in flight."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if job.cpus:
            os.sched_setaffinity(0, job.cpus)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def _main(job: Job, *, emit: Emit) -> None:
    loop = asyncio.get_running_loop()
    feed = Feed(high_water=2 * job.concurrency + 8)
    await loop.connect_read_pipe(lambda: feed, sys.stdin)
    generator = Generator(job, feed, ClockPage(job.clock_fd), emit=emit)
    stopping = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    started_cpu_s = _cpu_s()
    emit(to_json({"event": "ready"}))
    load = asyncio.create_task(generator.run())
    stop = asyncio.create_task(stopping.wait())
    await asyncio.wait({load, stop}, return_when=asyncio.FIRST_COMPLETED)
    if not load.done():
        generator.cut()
        await generator.drain()
        load.cancel()  # what waits for a request or an arrival has nothing to report
    stop.cancel()
    generator.flush()
    emit(to_json({"event": "stats", "cpu_s": _cpu_s() - started_cpu_s}))
    if load.done() and not load.cancelled():
        load.result()
    os._exit(0)  # everything is said; a `send` that does not end must not keep the process


def main() -> None:
    emit = _private_stdout()
    job = _read_job()
    _prepare_process(job)
    try:
        uvloop.run(_main(job, emit=emit))
    except SpecError as error:
        raise SystemExit(str(error)) from error


if __name__ == "__main__":
    main()
