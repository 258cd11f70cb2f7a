"""The raw traffic of a call, one JSON line a request. No key and no header is in it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

EXCHANGES = "exchanges.jsonl"


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """Document: one request and what came back. A body repeats the conversation so far, so only what differs from the
    request before it is kept: the whole is `num_kept_items` items of that one, then these."""

    schema_version: int = 1
    number: int
    api: str
    request: dict[str, Any]
    """keys of the body that differ from the request before"""
    dropped: list[str]
    """keys of the request before that this one does not have"""
    num_kept_items: int
    items: list[Any]
    """of the conversation, behind those kept"""
    status: int
    """0 = no answer came"""
    seconds: float
    answer: Any = None
    error: str = ""


@dataclass(kw_only=True)
class ExchangeLog:
    """Appends to `folder/exchanges.jsonl`, what earlier calls wrote there included."""

    folder: Path
    _number: int = 0
    _before: dict[str, Any] = field(default_factory=dict)
    _items: list[Any] = field(default_factory=list)

    def add(
        self, body: dict[str, Any], *, api: str, items_key: str, status: int, seconds: float, answer: Any, error: str
    ) -> None:
        """Record one request, sent as `body`."""
        fixed = {key: value for key, value in body.items() if key != items_key}
        items = list(body[items_key])
        num_kept = _num_common(self._items, items)
        self._number += 1
        exchange = Exchange(
            number=self._number, api=api, num_kept_items=num_kept, items=items[num_kept:], status=status,
            request={key: value for key, value in fixed.items() if self._before.get(key) != value},
            dropped=sorted(set(self._before) - set(fixed)), seconds=round(seconds, 3), answer=answer, error=error,
        )  # fmt: skip
        self._before, self._items = fixed, items
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / EXCHANGES).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(asdict(exchange), ensure_ascii=False, default=dict) + "\n")


def _num_common(first: list[Any], second: list[Any]) -> int:
    number = 0
    for mine, theirs in zip(first, second, strict=False):
        if mine != theirs:
            break
        number += 1
    return number
