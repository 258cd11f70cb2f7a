"""Frames of WebSockets: what a client may send, in any pieces, and what ends its connection."""

from __future__ import annotations

import struct

import pytest
from runtime.websocket import (
    BINARY,
    CLOSE,
    CONTINUATION,
    MAX_MESSAGE_BYTES,
    PING,
    TEXT,
    ClosedByFault,
    Frames,
    frame_of,
    unmasked,
)

MASK = b"\x01\x02\x03\x04"


def client_frame(operation: int, payload: bytes, *, is_last: bool = True, flags: int = 0, masks: bool = True) -> bytes:
    first = (0x80 if is_last else 0) | flags | operation
    length = len(payload)
    bit = 0x80 if masks else 0
    if length < 126:
        head = struct.pack("!BB", first, bit | length)
    elif length < 1 << 16:
        head = struct.pack("!BBH", first, bit | 126, length)
    else:
        head = struct.pack("!BBQ", first, bit | 127, length)
    return head + (MASK + unmasked(payload, MASK) if masks else payload)


@pytest.mark.parametrize("length", [0, 1, 125, 126, 65535, 65536, 200000])
def test_messages_of_every_length_arrive_in_any_pieces(length: int) -> None:
    payload = bytes(range(256)) * (length // 256 + 1)
    data = client_frame(BINARY, payload[:length])
    assert Frames().feed(data) == [(BINARY, payload[:length])]
    frames, found = Frames(), []
    for place in range(0, len(data), 1 + length // 50):
        found += frames.feed(data[place : place + 1 + length // 50])
    assert found == [(BINARY, payload[:length])]


def test_fragments_are_one_message_and_control_frames_may_stand_between() -> None:
    data = client_frame(TEXT, b"a", is_last=False) + client_frame(PING, b"p") + client_frame(CONTINUATION, b"b")
    assert Frames().feed(data + client_frame(TEXT, b"c")) == [(PING, b"p"), (TEXT, b"ab"), (TEXT, b"c")]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (client_frame(TEXT, b"x", masks=False), 1002),
        (client_frame(TEXT, b"x", flags=0x40), 1002),
        (client_frame(0x3, b""), 1002),
        (client_frame(CONTINUATION, b"x"), 1002),
        (client_frame(TEXT, b"x", is_last=False) + client_frame(TEXT, b"y"), 1002),
        (client_frame(PING, b"x", is_last=False), 1002),
        (client_frame(CLOSE, b"x" * 126), 1002),
        (struct.pack("!BBQ", 0x82, 0x80 | 127, MAX_MESSAGE_BYTES + 1), 1009),
    ],
)
def test_what_is_no_websocket_is_refused(data: bytes, code: int) -> None:
    with pytest.raises(ClosedByFault) as fault:
        Frames().feed(data)
    assert fault.value.code == code


@pytest.mark.parametrize("length", [0, 125, 126, 65536])
def test_a_server_s_frames_are_not_masked(length: int) -> None:
    frame = frame_of(TEXT, b"x" * length)
    assert frame[0] == 0x81 and not frame[1] & 0x80 and frame.endswith(b"x" * length)
