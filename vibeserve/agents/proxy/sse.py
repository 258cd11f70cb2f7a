"""Server-sent events, taken apart as they arrive (HTML standard, section 9.2)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

MAX_LINE_BYTES = 64 << 20
"""a longer one is passed over"""


class EventReader:
    """Bytes in, JSON documents out. What is no JSON (`[DONE]`, comments, broken events) is passed over."""

    def __init__(self) -> None:
        self._line_parts: list[bytes] = []
        self._num_line_bytes = 0
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[Any]:
        """Documents of the events that `chunk` completes."""
        first, *others = chunk.split(b"\n")
        self._add(first)
        for piece in others:
            yield from self._line(self._whole_line())
            self._add(piece)

    def finish(self) -> Iterator[Any]:
        """Documents of an event that the end of the stream completes."""
        yield from self._line(self._whole_line())
        yield from self._line(b"")

    def _add(self, piece: bytes) -> None:
        self._num_line_bytes += len(piece)
        if self._num_line_bytes <= MAX_LINE_BYTES:
            self._line_parts.append(piece)

    def _whole_line(self) -> bytes:
        line = b"".join(self._line_parts) if self._num_line_bytes <= MAX_LINE_BYTES else b""
        self._line_parts, self._num_line_bytes = [], 0
        return line.removesuffix(b"\r")

    def _line(self, line: bytes) -> Iterator[Any]:
        if line.startswith(b"data:"):
            self._data.append(line[5:])
        elif not line and self._data:
            text, self._data = b"\n".join(self._data), []
            document = parse_json(text)
            if document is not None:
                yield document


def parse_json(text: bytes) -> Any:
    """The document, or None where `text` is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
