"""The client's end of one WebSocket (RFC 6455), text messages only: for the load generator and for probes.

Written for one purpose: to say when a message arrived and to end when the load does. Extensions, sub-protocols and
binary messages are neither offered nor accepted. Frames of the client are masked, as the RFC asks.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import struct
from collections.abc import Callable
from typing import cast

from vibeserve.contract import CLOSED, SendError

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455, section 1.3"""
MAX_MESSAGE_BYTES = 32 << 20
MAX_HEAD_BYTES = 16 << 10
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
NORMAL_CLOSURE = 1000


class SocketExchange(asyncio.Protocol):
    """Shakes hands, hands every text message to `on_message` with the seconds at which its last byte was read.

    `opened` is set when messages may be sent, or when `error` says why they may not; `error` is set once, at the end.
    What `on_message` raises is `error`.
    """

    def __init__(
        self, *, host: str, path: str, now_s: Callable[[], float], on_message: Callable[[float, str], None]
    ) -> None:
        self.error: BaseException | None = None
        self.end_s = 0.0
        self._host, self._path = host, path
        self._now_s = now_s
        self._on_message = on_message
        self._key = base64.b64encode(os.urandom(16))
        self._changed = asyncio.Event()
        self._transport: asyncio.Transport | None = None
        self._buffer = b""
        self._message = b""
        self._is_open = False

    # -- contract.Socket

    async def send(self, text: str) -> float:
        """See `contract.Socket`."""
        if self.error is not None:
            raise self.error
        self._write(TEXT, text.encode())
        return round(self._now_s(), 6)

    async def until(self, holds: Callable[[], bool]) -> None:
        """See `contract.Socket`."""
        while not holds():
            if self.error is not None:
                raise self.error
            self._changed.clear()
            await self._changed.wait()

    async def opened(self) -> None:
        """Return when the handshake is over; raises what it failed with."""
        await self.until(lambda: self._is_open)

    def close(self) -> None:
        """Say goodbye and go. Nothing is read afterwards."""
        if self.error is None:
            if self._is_open:
                self._write(CLOSE, struct.pack("!H", NORMAL_CLOSURE))
            self._end(SendError(CLOSED))
            if self._transport is not None:
                self._transport.close()  # abort() would drop the goodbye

    def fail(self, error: BaseException) -> None:
        """End the connection as failed (or `cut`). The first reason stays."""
        if self.error is None:
            self.end_s = round(self._now_s(), 6)
            self._end(error)
            if self._transport is not None:
                self._transport.abort()

    # -- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self.error is not None:  # cut while it was connecting
            self._transport.abort()
            return
        head = (
            f"GET {self._path} HTTP/1.1\r\nHost: {self._host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {self._key.decode()}\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        self._transport.write(head.encode())

    def data_received(self, data: bytes) -> None:
        at_s = round(self._now_s(), 6)
        if self.error is not None:
            return
        self.end_s = at_s
        self._buffer += data
        try:
            if not self._is_open:
                self._shake_hands()
            while self._is_open and self.error is None and (frame := self._next_frame()) is not None:
                self._read(frame, at_s)
        except SendError as error:
            self.fail(error)
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.fail(SendError(f"{CLOSED}: {exc}" if exc else CLOSED))

    # -- frames

    def _shake_hands(self) -> None:
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            if len(self._buffer) > MAX_HEAD_BYTES:
                raise SendError("not HTTP: the answer to the handshake does not end")
            return
        status, *lines = head.split(b"\r\n")
        if b" 101 " not in status + b" ":
            raise SendError(f"no WebSocket: {(status[:80] + b' ' + rest[:400]).decode(errors='replace').strip()}")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        expected = base64.b64encode(hashlib.sha1(self._key + GUID).digest())
        if headers.get(b"sec-websocket-accept") != expected:
            raise SendError("no WebSocket: the handshake's key was not answered")
        self._buffer, self._is_open = rest, True

    def _next_frame(self) -> tuple[int, bool, bytes] | None:
        """Operation, whether it ends its message, payload; None until it is all there."""
        if len(self._buffer) < 2:
            return None
        first, second = self._buffer[0], self._buffer[1]
        length, start = second & 0x7F, 2
        if first & 0x70 or second & 0x80:
            raise SendError("not WebSocket: a frame with extensions, or a masked one")
        if length >= 126:
            size = 2 if length == 126 else 8
            if len(self._buffer) < 2 + size:
                return None
            length, start = int.from_bytes(self._buffer[2 : 2 + size], "big"), 2 + size
        if length > MAX_MESSAGE_BYTES:
            raise SendError(f"message larger than {MAX_MESSAGE_BYTES >> 20} MiB")
        if len(self._buffer) < start + length:
            return None
        payload, self._buffer = self._buffer[start : start + length], self._buffer[start + length :]
        return first & 0x0F, bool(first & 0x80), payload

    def _read(self, frame: tuple[int, bool, bytes], at_s: float) -> None:
        operation, is_last, payload = frame
        if operation == PING:
            self._write(PONG, payload)
        elif operation == CLOSE:
            reason = payload[2:].decode(errors="replace")
            raise SendError(f"{CLOSED}: {reason}" if reason else CLOSED)
        elif operation in (TEXT, CONTINUATION):
            self._message += payload
            if len(self._message) > MAX_MESSAGE_BYTES:
                raise SendError(f"message larger than {MAX_MESSAGE_BYTES >> 20} MiB")
            if is_last:
                message, self._message = self._message, b""
                self._hand_over(message, at_s)
        elif operation != PONG:
            raise SendError(f"not expected: a frame of kind {operation}")

    def _hand_over(self, message: bytes, at_s: float) -> None:
        try:
            text = message.decode()
        except UnicodeDecodeError as error:
            raise SendError("a message that is not UTF-8") from error
        self._on_message(at_s, text)

    def _write(self, operation: int, payload: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        length = len(payload)
        if length < 126:
            head = struct.pack("!BB", 0x80 | operation, 0x80 | length)
        elif length < 1 << 16:
            head = struct.pack("!BBH", 0x80 | operation, 0x80 | 126, length)
        else:
            head = struct.pack("!BBQ", 0x80 | operation, 0x80 | 127, length)
        mask = os.urandom(4)
        self._transport.write(head + mask + masked(payload, mask))

    def _end(self, error: BaseException) -> None:
        self.error = error
        self._changed.set()


def masked(payload: bytes, mask: bytes) -> bytes:
    """Every byte xor the mask's of its place modulo four; as one big integer, for pure Python takes a millisecond."""
    length = len(payload)
    repeated = (mask * (length // 4 + 1))[:length]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(length, "big")
