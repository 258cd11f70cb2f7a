"""One HTTP exchange over one connection. Runs in the generator's process only.

A connection per exchange: a kept-alive one may be closed by the server's idle timer in the very moment that a paused
server is continued, which would show as a failure of the server. The cost is the same for every server.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import httptools

from vibeserve.contract import CLOSED, SendError

MAX_REPLY_BYTES = 32 << 20
_MAX_ERROR_BYTES = 500


class Exchange(asyncio.Protocol):
    """Sends `payload` when connected, then collects the answer's body, or hands its lines to `on_line` as they come.

    `done` is set once, when the answer is complete or `error` says why it is not. What `on_line` raises is `error`.
    """

    def __init__(
        self, payload: bytes, *, now_s: Callable[[], float], on_line: Callable[[float, bytes], None] | None = None
    ) -> None:
        self.error: BaseException | None = None
        self.end_s = 0.0
        self.status = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._payload = payload
        self._now_s = now_s
        self._on_line = on_line
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._is_delimited = False
        self._num_bytes = 0
        self._parts: list[bytes] = []
        self._tail = b""

    @property
    def body(self) -> bytes:
        """What was not handed to `on_line`: all of it, or the last line where no line break ends it."""
        return b"".join((*self._parts, self._tail))

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self.done.done():  # cut while it was connecting
            self._transport.abort()
            return
        self._transport.write(self._payload)

    def data_received(self, data: bytes) -> None:
        self.end_s = round(self._now_s(), 6)
        self._num_bytes += len(data)
        if self._num_bytes > MAX_REPLY_BYTES:
            self.fail(SendError(f"reply larger than {MAX_REPLY_BYTES >> 20} MiB"))
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            self.fail(error.__context__ or error)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.fail(SendError(f"not HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        if self.done.done():
            return
        if exc is None and self.status and not self._is_delimited:
            self.on_message_complete()
            return
        self.fail(SendError(f"{CLOSED}: {exc}" if exc else CLOSED))

    # -- httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._is_delimited = True

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        if self.status != 200:
            self._tail = (self._tail + body)[:_MAX_ERROR_BYTES]
        elif self._on_line is None:
            self._parts.append(body)
        else:
            *lines, self._tail = (self._tail + body).split(b"\n")
            for line in lines:
                self._on_line(self.end_s, line)

    def on_message_complete(self) -> None:
        if self.status == 200:
            self._finish()
        else:
            self.fail(SendError(f"HTTP {self.status}: {self._tail.decode(errors='replace').strip()}"))

    # -- the end

    def fail(self, error: BaseException) -> None:
        """End the exchange as failed (or `cut`). The first reason stays."""
        if not self.done.done():
            self.error = error
            self.end_s = round(self._now_s(), 6)
            self._finish()

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result(None)
        if self._transport is not None:
            self._transport.abort()
