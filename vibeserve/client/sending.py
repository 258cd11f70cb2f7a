"""One request in flight: the session that a workload's `send` works through, and what became of it.

Runs in the generator's process only. `send` is somebody's code: whatever it raises or returns becomes the record of its
own request, the load goes on.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from vibeserve.client.exchange import MAX_REPLY_BYTES, Exchange
from vibeserve.client.records import record_data, to_json
from vibeserve.contract import CUT, Record, Request, Response, SendError, Workload
from vibeserve.modalities import Bundle
from vibeserve.modalities.folder import blame
from vibeserve.modalities.websocket import SocketExchange

GRACE_S = 2.0
"""for a `send` to return what it has, once its request was ended; afterwards it is cancelled"""
_MAX_ERROR_CHARS = 1000


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """The server of a load, and how to talk to it."""

    base_url: str
    model: str
    dialect: str


class RequestSession:
    """`contract.Session` of one request."""

    def __init__(self, endpoint: Endpoint, *, now_s: Callable[[], float]) -> None:
        self._endpoint = endpoint
        self._url = urlsplit(endpoint.base_url)
        self._now_s = now_s
        self._open: set[Exchange | SocketExchange] = set()
        self.sent_s: float | None = None
        """start of the first exchange"""
        self.end_s: float | None = None
        """last byte of the last exchange"""
        self.ended_by = ""
        """why the harness ended the request; empty = it did not"""

    @property
    def model(self) -> str:
        return self._endpoint.model

    @property
    def dialect(self) -> str:
        return self._endpoint.dialect

    @property
    def is_waiting(self) -> bool:
        """An exchange is in flight."""
        return bool(self._open)

    def now_s(self) -> float:
        return self._now_s()

    async def post(self, path: str, body: Any, *, on_line: Callable[[float, bytes], None] | None = None) -> Response:
        """See `contract.Session`."""
        if self.ended_by:
            await asyncio.sleep(0)  # a `send` that only ever tries again must not keep the loop to itself
            raise SendError(self.ended_by)
        exchange = Exchange(self._payload(path, body), now_s=self._now_s, on_line=on_line)
        self._open.add(exchange)
        if self.sent_s is None:
            self.sent_s = self._now_s()
        host, port = self._url.hostname or "127.0.0.1", self._url.port or 80
        try:
            await asyncio.get_running_loop().create_connection(lambda: exchange, host, port)
        except OSError as error:
            exchange.fail(SendError(f"connect: {error}"))
        try:
            await exchange.done
        finally:
            exchange.fail(SendError(CUT))  # where `send` itself was cancelled
            self._open.discard(exchange)
            self.end_s = exchange.end_s
        if exchange.error is not None:
            raise exchange.error
        if on_line is None:
            return Response(status=exchange.status, body=exchange.body, end_s=exchange.end_s)
        if exchange.body:
            on_line(exchange.end_s, exchange.body)
        return Response(status=exchange.status, body=b"", end_s=exchange.end_s)

    async def connect(self, path: str, *, on_message: Callable[[float, str], None]) -> SocketExchange:
        """See `contract.Session`. Open until it is closed, lost, or the load ends."""
        if self.ended_by:
            await asyncio.sleep(0)
            raise SendError(self.ended_by)
        if self.sent_s is None:
            self.sent_s = self._now_s()
        host, port = self._url.hostname or "127.0.0.1", self._url.port or 80
        prefix = self._url.path.rstrip("/").removesuffix("/v1")
        socket = SocketExchange(
            host=self._url.netloc, path=f"{prefix}/{path.lstrip('/')}", now_s=self._now_s, on_message=on_message
        )
        self._open.add(socket)
        try:
            await asyncio.get_running_loop().create_connection(lambda: socket, host, port)
            await socket.opened()
        except OSError as error:
            socket.fail(SendError(f"connect: {error}"))
        if socket.error is not None:
            raise socket.error
        return socket

    def land(self) -> None:
        """`send` has returned: what it left open is closed, and the last message's time is the request's end."""
        for socket in [each for each in self._open if isinstance(each, SocketExchange)]:
            self._open.discard(socket)
            socket.close()
            self.end_s = socket.end_s or self._now_s()

    def end(self, reason: str) -> None:
        """Fail what is in flight, and whatever would follow."""
        self.ended_by = self.ended_by or reason
        for exchange in list(self._open):
            exchange.fail(SendError(reason))

    def _payload(self, path: str, body: Any) -> bytes:
        prefix = self._url.path.rstrip("/").removesuffix("/v1")
        data = json.dumps(body).encode()
        head = (
            f"POST {prefix}/{path.lstrip('/')} HTTP/1.1\r\nHost: {self._url.netloc}\r\n"
            "Content-Type: application/json\r\nAccept: text/event-stream, application/json\r\n"
            f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n"
        )
        return head.encode() + data


class Flight:
    """One call of `send`: how long it may take, how it is ended, and what became of it."""

    def __init__(self, request: Request, session: RequestSession, *, limit_s: float) -> None:
        self.request = request
        self.session = session
        self.fault: BaseException | None = None
        self.record: Any = None
        self.is_landed = False
        self._limit_s = limit_s
        self._start_s = session.now_s()
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] | None = None
        self._timer = self._loop.call_later(limit_s, self._expire)

    async def fly(self, workload: Workload) -> None:
        """Call `send` in the task of the caller, so that nothing else runs before its first exchange."""
        self._task = asyncio.current_task()
        with _Caught(self):
            self.record = await workload.send(self.session, self.request)
        self._timer.cancel()
        self.session.land()
        self.is_landed = True

    def end(self, reason: str) -> None:
        """Cut or time out. `send` may still return what it has; one that waits for something else is cancelled."""
        is_waiting = self.session.is_waiting
        self.session.end(reason)
        self._timer.cancel()
        if is_waiting:
            self._timer = self._loop.call_later(GRACE_S, self._cancel)
        else:
            self._cancel()

    def outcome(self, record_type: type[Record], *, source: Source) -> tuple[Record | None, str | None]:
        """What `send` returned, where that is a record, and the request's error."""
        ended_by = self.session.ended_by or None
        if isinstance(self.fault, SendError):
            return None, ended_by or str(self.fault)[:_MAX_ERROR_CHARS]
        if self.fault is not None or not self.is_landed:
            return None, ended_by or source.blame(self.fault)
        record = self.record
        if not isinstance(record, record_type):
            return None, ended_by or source.returned(f"{type(record).__name__}, not {record_type.__name__}")
        error: Any = record.error
        if not isinstance(error, str | None):
            return None, ended_by or source.returned(f"an error that is no text: {error!r:.60}")
        # a record without an error is no whole reply where the harness broke it off
        return record, error or ended_by

    def times(self, *, scheduled_s: float) -> dict[str, float]:
        session = self.session
        return {
            "scheduled_s": round(scheduled_s, 6),
            "sent_s": round(self._sent_s, 6),
            "end_s": round(session.now_s() if session.end_s is None else session.end_s, 6),
        }

    @property
    def _sent_s(self) -> float:
        return self._start_s if self.session.sent_s is None else self.session.sent_s

    def _cancel(self) -> None:
        if self._task is not None and not self.is_landed:
            self._task.cancel()

    def _expire(self) -> None:
        """The limit holds for active time, from the first exchange on: a timer that fires early goes on waiting."""
        left_s = self._sent_s + self._limit_s - self.session.now_s()
        if left_s > 0:
            self._timer = self._loop.call_later(left_s, self._expire)
        else:
            self.end(f"timed out after {self._limit_s:g} s")


class _Caught:
    """The border to `send`: what it raises is kept as the flight's fault, instead of ending the task that called it."""

    def __init__(self, flight: Flight) -> None:
        self._flight = flight

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, fault: BaseException | None, trace: object) -> bool:
        self._flight.fault = fault
        task = asyncio.current_task()
        while task is not None and task.cancelling():
            task.uncancel()  # it was meant for `send`
        return isinstance(fault, Exception | SystemExit | asyncio.CancelledError)


@dataclass(frozen=True, kw_only=True)
class Source:
    """Whose `send` it is, for the errors of its records."""

    path: Path
    line: int

    def blame(self, fault: BaseException | None) -> str:
        if fault is None or isinstance(fault, asyncio.CancelledError):
            return self.returned("nothing: it was cancelled")
        return blame(fault, self.path)[:_MAX_ERROR_CHARS]

    def returned(self, what: str) -> str:
        return f"{self.path}:{self.line}: send returned {what}"[:_MAX_ERROR_CHARS]


def source_of(bundle: Bundle) -> Source:
    """Where the bundle's `send` is written."""
    kind, _, place = bundle.ref.workload.partition(":")
    path = Path(place if kind == "file" else sys.modules[place].__file__ or place)
    code = getattr(bundle.workload.send, "__code__", None)
    return Source(path=path, line=code.co_firstlineno if code is not None else 1)


def record_line(
    number: int, record: Record | None, *, times: dict[str, float], error: str | None, source: Source
) -> bytes:
    """One finished request as the parent reads it. What is no JSON data, or too much of it, is an error."""
    try:
        data = {} if record is None else record_data(record)
        line = to_json({"n": number, **times, "error": error, "record": data})
        fault = f"a record larger than {MAX_REPLY_BYTES >> 20} MiB" if len(line) > MAX_REPLY_BYTES else ""
    except (TypeError, ValueError, RecursionError) as problem:
        fault = f"a record that is not JSON: {problem}"
    if not fault:
        return line
    return to_json({"n": number, **times, "error": error or source.returned(fault), "record": {}})
