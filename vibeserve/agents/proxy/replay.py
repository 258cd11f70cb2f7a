"""Stands in for an API: answers from recorded traffic, in order, and from nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from vibeserve.agents.proxy.record import UPSTREAM, Exchange, read_traffic
from vibeserve.agents.proxy.upstream import Answer, Outgoing, UpstreamError


class ReplayUpstream:
    """A `Transport` without a network and without a key.

    Metered requests are answered in the recorded order. One that differs in role, dialect or model, one that follows
    the last, and one whose recorded answer is not whole are refused: the client sees 502, the proxy's `last_failure`
    says why. What was not metered (token counts, lists of models) is answered by the first recorded one of its path.
    """

    is_offline = True

    def __init__(self, path: Path, *, role: str) -> None:
        """`path`: a `traffic.jsonl`. Raises SpecError for what is none."""
        self._path = path
        self._role = role
        answered = [exchange for exchange in read_traffic(path) if exchange.answered_by == UPSTREAM]
        self._metered = [exchange for exchange in answered if exchange.is_metered]
        self._others = [exchange for exchange in answered if not exchange.is_metered]
        self._num_answered = 0

    @property
    def num_left(self) -> int:
        """Recorded metered answers that were not asked for."""
        return len(self._metered) - self._num_answered

    @asynccontextmanager
    async def send(self, outgoing: Outgoing) -> AsyncIterator[Answer]:
        exchange = self._next(outgoing) if outgoing.route.is_metered else self._unmetered(outgoing)
        yield _Recorded(status=exchange.status, headers={"Content-Type": exchange.content_type}, body=_body(exchange))

    async def close(self) -> None:
        """Nothing is held."""

    def _next(self, outgoing: Outgoing) -> Exchange:
        number = self._num_answered + 1
        if not self.num_left:
            raise self._refusal(f"ends after {self._num_answered} requests, and another one came")
        exchange = self._metered[self._num_answered]
        asked = {"role": self._role, "dialect": outgoing.route.dialect, "model": outgoing.model}
        for name, value in asked.items():
            recorded = getattr(exchange, name)
            if recorded != value:
                raise self._refusal(f"has {name} '{recorded}' for request {number}, and '{value}' was asked")
        if not exchange.is_whole:
            raise self._refusal(f"does not hold the whole answer to request {number}: {exchange.note}")
        self._num_answered += 1
        return exchange

    def _unmetered(self, outgoing: Outgoing) -> Exchange:
        for exchange in self._others:
            if exchange.path == outgoing.route.path:
                return exchange
        raise self._refusal(f"has no answer for {outgoing.route.path}")

    def _refusal(self, text: str) -> UpstreamError:
        return UpstreamError(f"the recording {self._path} {text}", status=502, is_lasting=True)


def _body(exchange: Exchange) -> bytes:
    text = exchange.response if isinstance(exchange.response, str) else json.dumps(exchange.response)
    return text.encode()


@dataclass(frozen=True, kw_only=True)
class _Recorded:
    status: int
    headers: Mapping[str, str]
    body: bytes

    async def chunks(self) -> AsyncIterator[bytes]:
        """One event at a time, as a stream would bring them."""
        for event in re.split(rb"(?<=\n\n)", self.body):
            yield event
