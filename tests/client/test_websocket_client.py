"""The client's end of a WebSocket, against a server that is written out: what it sends, reads, and refuses."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from vibeserve.client.sending import Endpoint, RequestSession
from vibeserve.contract import CUT, SendError
from vibeserve.modalities.websocket import GUID, masked

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def frame(operation: int, payload: bytes, *, is_last: bool = True, flags: int = 0) -> bytes:
    length = len(payload)
    head = struct.pack("!BB", (0x80 if is_last else 0) | flags | operation, min(length, 126))
    return head + (struct.pack("!H", length) if length >= 126 else b"") + payload


async def shake_hands(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, key: bytes = b"") -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:-2])
    answer = base64.b64encode(hashlib.sha1((key or fields[b"Sec-WebSocket-Key"]) + GUID).digest())
    writer.write(b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: " + answer + b"\r\n\r\n")
    return head


async def read_frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    first, second = await reader.readexactly(2)
    length = second & 0x7F
    assert second & 0x80, "a client's frames are masked"
    if length >= 126:
        size = 2 if length == 126 else 8
        length = int.from_bytes(await reader.readexactly(size), "big")
    mask = await reader.readexactly(4)
    return first & 0x0F, masked(await reader.readexactly(length), mask)


def talk(serve: Serve, speak: Callable[[RequestSession, list[str]], Awaitable[Any]]) -> tuple[Any, list[str]]:
    """What `speak` returns, and the messages that were handed over."""
    got: list[str] = []

    async def run() -> Any:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        loop = asyncio.get_running_loop()
        session = RequestSession(
            Endpoint(base_url=f"http://127.0.0.1:{port}/v1", model="m", dialect="vllm"), now_s=loop.time
        )
        try:
            return await asyncio.wait_for(speak(session, got), 20)
        finally:
            session.land()
            server.close()

    return asyncio.run(run()), got


def connect_and_wait(num: int) -> Callable[[RequestSession, list[str]], Awaitable[Any]]:
    async def speak(session: RequestSession, got: list[str]) -> Any:
        socket = await session.connect("/v1/realtime", on_message=lambda _, text: got.append(text))
        await socket.until(lambda: len(got) >= num)
        socket.close()

    return speak


def sends(data: bytes, *, piece: int = 0) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await shake_hands(reader, writer)
        for place in range(0, len(data), piece or max(len(data), 1)):
            writer.write(data[place : place + (piece or len(data))])
            await writer.drain()
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        writer.close()

    return serve


@pytest.mark.parametrize("piece", [0, 1, 7])
def test_messages_come_whole_in_any_pieces(piece: int) -> None:
    data = frame(0x1, b"one") + frame(0x1, b"t", is_last=False) + frame(0x9, b"ping") + frame(0x0, b"wo")
    _, got = talk(sends(data + frame(0x1, b"x" * 300), piece=piece), connect_and_wait(3))
    assert got == ["one", "two", "x" * 300]


def test_the_request_goes_below_the_prefix_and_pings_are_answered() -> None:
    seen: list[Any] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await shake_hands(reader, writer))
        writer.write(frame(0x9, b"hello"))
        seen.append(await read_frame(reader))
        seen.append(await read_frame(reader))
        writer.write(frame(0x1, b"done"))
        seen.append(await read_frame(reader))
        writer.close()

    async def speak(session: RequestSession, got: list[str]) -> Any:
        socket = await session.connect("/v1/realtime?intent=transcription", on_message=lambda _, text: got.append(text))
        await asyncio.sleep(0.05)
        sent_s = await socket.send("y" * 70000)
        await socket.until(lambda: bool(got))
        assert session.sent_s is not None and session.sent_s <= sent_s
        socket.close()
        await asyncio.sleep(0.05)

    talk(serve, speak)
    assert seen[0].startswith(b"GET /v1/realtime?intent=transcription HTTP/1.1\r\n")
    assert seen[1:] == [(0xA, b"hello"), (0x1, b"y" * 70000), (0x8, struct.pack("!H", 1000))]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (frame(0x8, struct.pack("!H", 1011) + b"out of memory"), "connection lost before the end of the reply: out of"),
        (frame(0x2, b"binary"), "not expected: a frame of kind 2"),
        (frame(0x1, b"x", flags=0x40), "not WebSocket: a frame with extensions"),
        (frame(0x1, b"\xff"), "a message that is not UTF-8"),
        (struct.pack("!BBQ", 0x81, 127, 1 << 40), "message larger than 32 MiB"),
        (b"", "connection lost before the end of the reply"),
    ],
)
def test_what_ends_a_connection_is_the_error(data: bytes, told: str) -> None:
    with pytest.raises(SendError, match=told):
        talk(sends(data), connect_and_wait(1))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (b"HTTP/1.1 503 Busy\r\nRetry-After: 1\r\n\r\n{}", "no WebSocket: HTTP/1.1 503 Busy"),
        (b"HTTP/1.1 101 Yes\r\nSec-WebSocket-Accept: no\r\n\r\n", "the handshake's key was not answered"),
        (b"x" * 20000, "not HTTP"),
    ],
)
def test_a_server_that_opens_none_is_told_from_one_that_does(answer: bytes, told: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.close()

    with pytest.raises(SendError, match=told):
        talk(serve, connect_and_wait(1))


def test_nobody_listens() -> None:
    async def speak() -> None:
        endpoint = Endpoint(base_url="http://127.0.0.1:9/v1", model="m", dialect="vllm")
        session = RequestSession(endpoint, now_s=asyncio.get_running_loop().time)
        await session.connect("/v1/realtime", on_message=lambda *_: None)

    with pytest.raises(SendError, match="connect: "):
        asyncio.run(speak())


def test_the_end_of_a_load_ends_the_connection() -> None:
    async def speak(session: RequestSession, got: list[str]) -> Any:
        socket = await session.connect("/v1/realtime", on_message=lambda _, text: got.append(text))
        asyncio.get_running_loop().call_later(0.05, session.end, CUT)
        assert session.is_waiting
        with pytest.raises(SendError, match=CUT):
            await socket.until(lambda: False)
        with pytest.raises(SendError, match=CUT):
            await socket.send("more")
        with pytest.raises(SendError, match=CUT):
            await session.connect("/v1/realtime", on_message=lambda *_: None)
        session.land()
        assert not session.is_waiting and session.end_s is not None

    talk(sends(b""), speak)


def test_masking_is_undone_by_itself() -> None:
    for length in (0, 1, 3, 4, 5, 1000):
        payload = bytes(number % 251 for number in range(length))
        assert masked(masked(payload, b"\x81\x02\xf3\x04"), b"\x81\x02\xf3\x04") == payload
