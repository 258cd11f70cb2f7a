"""One request and its streamed reply over one connection. Runs in the generator's process only.

A connection per request: a kept-alive one may be closed by the server's idle timer in the very moment that a paused
server is continued, which would show as a failure of the server. The cost is the same for every server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

from vibeserve.client.adapters import parse_event

MAX_REPLY_BYTES = 32 << 20
_MAX_ERROR_BYTES = 500


class Exchange(asyncio.Protocol):
    """Sends `payload` when connected, then collects events with the time at which their last byte was read.

    `done` is set once, when the reply is complete or `error` says why it is not.
    """

    def __init__(self, payload: bytes, *, now_s: Callable[[], float]) -> None:
        self.chunks: list[tuple[float, str, tuple[int, ...]]] = []
        self.logprobs: list[float] = []
        self.finish_reason: str | None = None
        self.usage: tuple[int, int] | None = None
        self.error: str | None = None
        self.end_s = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._payload = payload
        self._now_s = now_s
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._status = 0
        self._is_delimited = False
        self._is_done_seen = False
        self._num_bytes = 0
        self._tail = b""

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self.done.done():  # cut while it was connecting
            self._transport.abort()
            return
        self._transport.write(self._payload)

    def data_received(self, data: bytes) -> None:
        self.end_s = self._now_s()
        self._num_bytes += len(data)
        if self._num_bytes > MAX_REPLY_BYTES:
            self.fail(f"reply larger than {MAX_REPLY_BYTES >> 20} MiB")
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.fail(f"not HTTP: {error}")

    def connection_lost(self, exc: Exception | None) -> None:
        if self.done.done():
            return
        if exc is None and self._status and (self._is_done_seen or not self._is_delimited):
            self.on_message_complete()
            return
        self.fail(f"connection lost before the end of the reply{f': {exc}' if exc else ''}")

    # -- httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._is_delimited = True

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if self._status != 200:
            self._tail = (self._tail + body)[:_MAX_ERROR_BYTES]
            return
        *lines, self._tail = (self._tail + body).split(b"\n")
        for line in lines:
            self._read_line(line)

    def on_message_complete(self) -> None:
        if self._status != 200:
            self.fail(f"HTTP {self._status}: {self._tail.decode(errors='replace').strip()}")
            return
        if self._tail:
            self._read_line(self._tail)
        self._finish()

    # -- events

    def _read_line(self, line: bytes) -> None:
        """One line of the event stream; our servers and peers write one `data:` line per event."""
        if self.error is not None or not line.startswith(b"data:"):
            return
        data = line[5:].strip()
        if data == b"[DONE]":
            self._is_done_seen = True
            return
        try:
            event = parse_event(data.decode())
        except ValueError as error:
            self.fail(f"malformed event: {error}")
            return
        if event.error is not None:
            self.fail(f"error event: {event.error}")
            return
        if event.text or event.token_ids:
            self.chunks.append((round(self.end_s, 6), event.text, event.token_ids))
        self.logprobs.extend(event.logprobs)
        self.finish_reason = event.finish_reason or self.finish_reason
        self.usage = event.usage or self.usage

    # -- the end

    def fail(self, error: str) -> None:
        """End the exchange as failed (or `cut`). The first reason stays."""
        if not self.done.done():
            self.error = self.error or error
            self.end_s = self._now_s()
            self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
        if self._transport is not None:
            self._transport.abort()
