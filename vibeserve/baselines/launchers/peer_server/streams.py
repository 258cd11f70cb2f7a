"""From an engine's thread to one reply: token ids as they come, and the text that they make."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

REPLACEMENT = "\ufffd"
"""what decoding puts in place of bytes that are not (yet) valid UTF-8"""


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """What one step has brought. The last one has a `finish_reason`, or a `fault`."""

    token_ids: tuple[int, ...] = ()
    finish_reason: str | None = None
    fault: str | None = None


class TokenStream:
    """Made on the event loop; `put`, `end` and `fail` are called from the engine's thread."""

    def __init__(self) -> None:
        self.is_abandoned = False
        """the client has gone: the engine may stop"""
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Delivery] = asyncio.Queue()

    def put(self, token_ids: Sequence[int]) -> None:
        self._send(Delivery(token_ids=tuple(token_ids)))

    def end(self, reason: str) -> None:
        """`stop` or `length`."""
        self._send(Delivery(finish_reason=reason))

    def fail(self, fault: str) -> None:
        self._send(Delivery(fault=fault))

    async def deliveries(self) -> AsyncIterator[Delivery]:
        """Up to the last one."""
        while True:
            delivery = await self._queue.get()
            yield delivery
            if delivery.finish_reason is not None or delivery.fault is not None:
                return

    def _send(self, delivery: Delivery) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._queue.put_nowait, delivery)


class Detokenizer:
    """Text of a growing list of ids. A short window is decoded twice, without and with what is new, because a decoder's
    text of a token may depend on its neighbours; unfinished characters wait."""

    def __init__(self, decode: Callable[[list[int]], str]) -> None:
        self._decode = decode
        self._ids: list[int] = []
        self._start = 0
        self._num_told = 0

    def add(self, token_ids: Sequence[int]) -> str:
        self._ids.extend(token_ids)
        text = self._new_text()
        if not text or text.endswith(REPLACEMENT):
            return ""
        self._start, self._num_told = self._num_told, len(self._ids)
        return text

    def flush(self) -> str:
        """What still waits, whole characters or not."""
        return self._new_text()

    def _new_text(self) -> str:
        told = self._decode(self._ids[self._start : self._num_told])
        return self._decode(self._ids[self._start :])[len(told) :]
