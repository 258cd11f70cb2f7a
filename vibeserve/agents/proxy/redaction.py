"""The key, taken out of whatever passes: an API that echoes it must not carry it into the sandbox or a record."""

from __future__ import annotations

import json
from urllib.parse import quote

REDACTED = "[redacted key]"
MIN_KEY_CHARS = 8
"""a shorter one (`EMPTY`, `none`) guards nothing, and is found in ordinary text"""


class Redactor:
    """Replaces the key in bytes and text, also as it is written in JSON and in addresses."""

    def __init__(self, *keys: str) -> None:
        secrets = {key for key in keys if len(key) >= MIN_KEY_CHARS}
        spellings = {form for key in secrets for form in (key, json.dumps(key)[1:-1], quote(key, safe=""))}
        self._needles = sorted((form.encode() for form in spellings), key=len, reverse=True)

    def clean(self, data: bytes) -> bytes:
        for needle in self._needles:
            data = data.replace(needle, REDACTED.encode())
        return data

    def clean_text(self, text: str) -> str:
        return self.clean(text.encode(errors="surrogateescape")).decode(errors="surrogateescape")

    def stream(self) -> RedactedStream:
        return RedactedStream(self)

    def num_open(self, data: bytes) -> int:
        """Length of the end of `data` that may be the beginning of a key."""
        longest = max((len(needle) for needle in self._needles), default=1) - 1
        for length in range(min(longest, len(data)), 0, -1):
            tail = data[-length:]
            if any(needle.startswith(tail) for needle in self._needles):
                return length
        return 0


class RedactedStream:
    """The same over chunks: only an end that may be the beginning of a key waits for the next chunk."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        data = self._redactor.clean(self._held + chunk)
        keep = self._redactor.num_open(data)
        self._held = data[len(data) - keep :]
        return data[: len(data) - keep]

    def finish(self) -> bytes:
        data, self._held = self._held, b""
        return data
