"""The load generator: a child process that sends requests and reports raw replies (`python -m
vibeserve.client.generator`).

stdin: the job as one JSON line, then one line per request (`{"n", "due_s", "request"}`), until end of file.
stdout: `{"event": "ready"}`, one line per finished request, and `{"event": "stats"}` at the end, as JSON.
SIGTERM: what is in flight is reported with error `cut`, then the process ends.

It runs on the client's cores inside the server's network namespace, and holds no more prompts than it is about to send.
All times it reports are active seconds of the session (`vibeserve.client.clock`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import resource
import signal
import sys
from collections import deque
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import uvloop

from vibeserve.client.adapters import COMPLETIONS_PATH, get_adapter
from vibeserve.client.clock import ClockPage
from vibeserve.client.exchange import Exchange
from vibeserve.core.nouns import PromptRequest

FAILURE_BACKOFF_S = 0.05  # a closed loop must not spin against a server that refuses everything
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, kw_only=True)
class Job:
    base_url: str
    adapter: str
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

    def __init__(self, job: Job, feed: Feed, clock: ClockPage) -> None:
        self._job = job
        self._feed = feed
        self._now_s = clock.now_s
        self._adapter = get_adapter(job.adapter)
        url = urlsplit(job.base_url)
        self._host, self._port = url.hostname or "127.0.0.1", url.port or 80
        self._path = url.path.rstrip("/").removesuffix("/v1") + COMPLETIONS_PATH
        self._in_flight: set[Exchange] = set()
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        if self._job.concurrency:
            await asyncio.gather(*(self._closed_loop() for _ in range(self._job.concurrency)))
        else:
            await self._open_loop()

    def cut(self) -> None:
        """End everything in flight; the tasks report what they have."""
        self._stopping.set()
        for exchange in list(self._in_flight):
            exchange.fail("cut")

    async def drain(self) -> None:
        """Until everything in flight is reported; the tasks do not wait for the server any more."""
        while self._in_flight:
            await asyncio.sleep(0.001)

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
        request = PromptRequest(**line["request"])
        exchange = Exchange(self._payload(request), now_s=self._now_s)
        self._in_flight.add(exchange)
        sent_s = self._now_s()
        try:
            await asyncio.get_running_loop().create_connection(lambda: exchange, self._host, self._port)
        except OSError as error:
            exchange.fail(f"connect: {error}")
        timer = asyncio.create_task(self._expire(exchange, sent_s))
        await exchange.done
        timer.cancel()
        self._in_flight.discard(exchange)
        _emit(_record(line["n"], exchange, scheduled_s=scheduled_s, sent_s=sent_s))
        return exchange.error

    async def _expire(self, exchange: Exchange, sent_s: float) -> None:
        limit_s = self._job.request_timeout_s
        while (left_s := sent_s + limit_s - self._now_s()) > 0:
            await asyncio.sleep(left_s)
        exchange.fail(f"timed out after {limit_s:g} s")

    def _payload(self, request: PromptRequest) -> bytes:
        body = json.dumps(self._adapter.body(request, self._job.model)).encode()
        head = (
            f"POST {self._path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nContent-Type: application/json\r\n"
            f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + body


def _record(n: int, exchange: Exchange, *, scheduled_s: float, sent_s: float) -> dict[str, Any]:
    return {
        "n": n,
        "scheduled_s": round(scheduled_s, 6),
        "sent_s": round(sent_s, 6),
        "end_s": round(exchange.end_s, 6),
        "chunks": exchange.chunks,
        "finish_reason": exchange.finish_reason,
        "usage": exchange.usage,
        "logprobs": exchange.logprobs,
        "error": exchange.error,
    }


def _emit(document: dict[str, Any]) -> None:
    sys.stdout.buffer.write(json.dumps(document, separators=(",", ":")).encode() + b"\n")
    sys.stdout.buffer.flush()


def _read_job() -> Job:
    """The first line of stdin, byte by byte: what follows belongs to the feed."""
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte:
            raise SystemExit("generator: no job on stdin")
        line += byte
    document = json.loads(line)
    return Job(**(document | {"cpus": tuple(document["cpus"])}))


def _prepare_process(job: Job) -> None:
    """Die with the parent (also when stopped), sit on the client's cores, allow a connection per request in flight."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if job.cpus:
            os.sched_setaffinity(0, job.cpus)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


async def _main(job: Job) -> None:
    loop = asyncio.get_running_loop()
    feed = Feed(high_water=2 * job.concurrency + 8)
    await loop.connect_read_pipe(lambda: feed, sys.stdin)
    generator = Generator(job, feed, ClockPage(job.clock_fd))
    stopping = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    _emit({"event": "ready"})
    load = asyncio.create_task(generator.run())
    stop = asyncio.create_task(stopping.wait())
    await asyncio.wait({load, stop}, return_when=asyncio.FIRST_COMPLETED)
    if not load.done():
        generator.cut()
        await generator.drain()
        load.cancel()  # what waits for a request or an arrival has nothing to report
    stop.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await load
    usage = resource.getrusage(resource.RUSAGE_SELF)
    _emit({"event": "stats", "cpu_s": usage.ru_utime + usage.ru_stime})


def main() -> None:
    job = _read_job()
    _prepare_process(job)
    uvloop.run(_main(job))


if __name__ == "__main__":
    main()
