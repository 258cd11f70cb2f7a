"""The server's end of WebSockets (RFC 6455) for uvicorn: ASGI's messages over its connections, text and binary.

uvicorn brings no implementation of its own. Fragmented messages, pings and closing handshakes are answered as the RFC
asks; extensions are declined. A message that is too large, not masked, or text that is no UTF-8 ends the connection.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import struct
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455, section 1.3"""
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
NORMAL, GOING_AWAY, PROTOCOL_ERROR, NOT_TEXT, TOO_LARGE, FAULT = 1000, 1012, 1002, 1007, 1009, 1011
NO_CLOSE, ABNORMAL = 1005, 1006
"""codes that never travel: a close frame without a code; a connection that was lost"""
MAX_MESSAGE_BYTES = 16 << 20
MAX_QUEUED = 64
"""messages that the application has not taken; beyond it the client is not read"""

logger = logging.getLogger("runtime")


class ClosedByFault(Exception):
    """What the client sent is no WebSocket; `code` is what it is told."""

    def __init__(self, code: int, reason: str) -> None:
        self.code = code
        super().__init__(reason)


class Frames:
    """Bytes from a client -> (operation, payload) of whole messages and of control frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._parts = bytearray()
        self._kind = CONTINUATION

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Raises ClosedByFault."""
        self._buffer += data
        found: list[tuple[int, bytes]] = []
        while (frame := self._next()) is not None:
            operation, is_last, payload = frame
            if operation >= CLOSE:
                if not is_last or len(payload) > 125:
                    raise ClosedByFault(PROTOCOL_ERROR, "a control frame that is fragmented or too long")
                found.append((operation, payload))
                continue
            if (operation == CONTINUATION) == (self._kind == CONTINUATION):
                raise ClosedByFault(PROTOCOL_ERROR, "fragments out of order")
            self._kind = self._kind if operation == CONTINUATION else operation
            self._parts += payload
            if len(self._parts) > MAX_MESSAGE_BYTES:
                raise ClosedByFault(TOO_LARGE, f"a message larger than {MAX_MESSAGE_BYTES >> 20} MiB")
            if is_last:
                found.append((self._kind, bytes(self._parts)))
                self._parts, self._kind = bytearray(), CONTINUATION
        return found

    def _next(self) -> tuple[int, bool, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        operation, length, start = buffer[0] & 0x0F, buffer[1] & 0x7F, 2
        if buffer[0] & 0x70 or operation not in (CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG):
            raise ClosedByFault(PROTOCOL_ERROR, "a frame of an unknown kind, or with extensions")
        if not buffer[1] & 0x80:
            raise ClosedByFault(PROTOCOL_ERROR, "a client's frame is not masked")
        if length >= 126:
            size = 2 if length == 126 else 8
            if len(buffer) < 2 + size:
                return None
            length, start = int.from_bytes(buffer[2 : 2 + size], "big"), 2 + size
        if length > MAX_MESSAGE_BYTES:
            raise ClosedByFault(TOO_LARGE, f"a message larger than {MAX_MESSAGE_BYTES >> 20} MiB")
        end = start + 4 + length
        if len(buffer) < end:
            return None
        payload = unmasked(bytes(buffer[start + 4 : end]), bytes(buffer[start : start + 4]))
        is_last = bool(buffer[0] & 0x80)
        del buffer[:end]
        return operation, is_last, payload


def unmasked(payload: bytes, mask: bytes) -> bytes:
    """Every byte xor the mask's of its place modulo four, as one big integer."""
    length = len(payload)
    repeated = (mask * (length // 4 + 1))[:length]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(repeated, "big")).to_bytes(length, "big")


def frame_of(operation: int, payload: bytes) -> bytes:
    """A server's frame: not masked, not fragmented."""
    length = len(payload)
    if length < 126:
        return struct.pack("!BB", 0x80 | operation, length) + payload
    if length < 1 << 16:
        return struct.pack("!BBH", 0x80 | operation, 126, length) + payload
    return struct.pack("!BBQ", 0x80 | operation, 127, length) + payload


class WebSocketProtocol(asyncio.Protocol):
    """What uvicorn hands an upgraded connection to: it feeds the request's head again, then the bytes behind it."""

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], _loop: Any = None) -> None:
        self._app: Callable[..., Any] = config.loaded_app
        self._connections, self._tasks = server_state.connections, server_state.tasks
        self._app_state = app_state
        self._loop = asyncio.get_running_loop()
        self._frames = Frames()
        self._head = b""
        self._queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: Any = None
        self._key = b""
        self._is_accepted = self._is_closing = self._is_lost = self._is_rejected = False

    # -- asyncio.Protocol

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._is_lost = True
        self._writable.set()
        self._queue.put_nowait({"type": "websocket.disconnect", "code": ABNORMAL, "reason": ""})

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        if not self._key:
            self._head += data
            head, end, data = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            self._begin(head)
        if not data or self._is_closing:
            return
        try:
            for operation, payload in self._frames.feed(data):
                self._take(operation, payload)
        except ClosedByFault as fault:
            self._queue.put_nowait({"type": "websocket.disconnect", "code": fault.code, "reason": str(fault)})
            self._close(fault.code, str(fault))

    def shutdown(self) -> None:
        """uvicorn is stopping."""
        self._queue.put_nowait({"type": "websocket.disconnect", "code": GOING_AWAY, "reason": "server is stopping"})
        self._close(GOING_AWAY, "server is stopping")

    # -- what comes

    def _begin(self, head: bytes) -> None:
        request, *lines = head.split(b"\r\n")
        headers = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
        fields = dict(headers)
        self._key = fields.get(b"sec-websocket-key", b"")
        if fields.get(b"sec-websocket-version") != b"13" or len(self._key) != 24:
            self._key = self._key or b"-"
            self._answer(400, [(b"sec-websocket-version", b"13")], b"no WebSocket handshake of version 13")
            return
        path, _, query = request.split(b" ")[1].partition(b"?")
        scope = {
            "type": "websocket",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "scheme": "ws",
            "server": self._transport.get_extra_info("sockname"),
            "client": self._transport.get_extra_info("peername"),
            "root_path": "",
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "headers": headers,
            "subprotocols": [],
            "state": self._app_state.copy(),
            "extensions": {"websocket.http.response": {}},
        }
        self._queue.put_nowait({"type": "websocket.connect"})
        task = self._loop.create_task(self._run(scope))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take(self, operation: int, payload: bytes) -> None:
        if operation == PING:
            self._transport.write(frame_of(PONG, payload))
        elif operation == CLOSE:
            code = int.from_bytes(payload[:2], "big") if len(payload) >= 2 else NO_CLOSE
            self._queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": ""})
            self._close(NORMAL if code == NO_CLOSE else code, "")
        elif operation == BINARY:
            self._offer({"type": "websocket.receive", "bytes": payload})
        elif operation == TEXT:
            try:
                text = payload.decode()
            except UnicodeDecodeError as error:
                raise ClosedByFault(NOT_TEXT, "text that is not UTF-8") from error
            self._offer({"type": "websocket.receive", "text": text})

    def _offer(self, message: dict[str, Any]) -> None:
        self._queue.put_nowait(message)
        if self._queue.qsize() >= MAX_QUEUED:
            self._transport.pause_reading()

    # -- the application

    async def _run(self, scope: dict[str, Any]) -> None:
        try:
            await self._app(scope, self._receive, self._send)
        finally:
            if not self._is_accepted and not self._is_rejected:
                self._answer(500, [], b"internal error")
            self._close(FAULT if not self._is_closing else NORMAL, "")

    async def _receive(self) -> dict[str, Any]:
        message = await self._queue.get()
        if self._queue.qsize() < MAX_QUEUED // 2 and not self._is_lost and not self._transport.is_closing():
            self._transport.resume_reading()
        return message

    async def _send(self, message: dict[str, Any]) -> None:
        await self._writable.wait()
        kind = message["type"]
        if self._is_lost or (self._is_closing and kind == "websocket.send"):
            return
        if kind == "websocket.accept":
            self._accept(message.get("headers") or [])
        elif kind == "websocket.send":
            text = message.get("text")
            is_text = text is not None
            self._transport.write(frame_of(TEXT if is_text else BINARY, text.encode() if is_text else message["bytes"]))
        elif kind == "websocket.close" and self._is_accepted:
            self._close(message.get("code", NORMAL), message.get("reason") or "")
        elif kind == "websocket.close":
            self._answer(403, [], b"")
        elif kind == "websocket.http.response.start":
            self._rejection = (message["status"], list(message["headers"]))
        elif kind == "websocket.http.response.body":
            self._answer(*self._rejection, message.get("body", b""))

    def _accept(self, headers: list[tuple[bytes, bytes]]) -> None:
        self._is_accepted = True
        answer = base64.b64encode(hashlib.sha1(self._key + GUID).digest())
        fields = [(b"upgrade", b"websocket"), (b"connection", b"Upgrade"), (b"sec-websocket-accept", answer), *headers]
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in fields)
        self._transport.write(b"HTTP/1.1 101 Switching Protocols\r\n" + lines + b"\r\n")

    def _answer(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """A plain HTTP answer in place of a WebSocket."""
        if self._is_rejected or self._transport.is_closing():
            return
        self._is_rejected = True
        fields = [*headers, (b"connection", b"close")]
        if not any(name.lower() == b"content-length" for name, _ in headers):
            fields.append((b"content-length", str(len(body)).encode()))
        lines = b"".join(name + b": " + value + b"\r\n" for name, value in fields)
        self._transport.write(b"HTTP/1.1 %d \r\n" % status + lines + b"\r\n" + body)
        self._is_closing = True
        self._transport.close()

    def _close(self, code: int, reason: str) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if self._is_accepted and not self._transport.is_closing():
            self._transport.write(frame_of(CLOSE, struct.pack("!H", code) + reason.encode()[:120]))
        self._transport.close()
