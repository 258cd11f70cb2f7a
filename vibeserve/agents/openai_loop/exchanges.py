"""The raw traffic of a call, one JSON line a request. No key and no header is in it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from vibeserve.sandbox import tree

EXCHANGES = "exchanges.jsonl"
NUMBERS = re.compile(r"\d+(?:\.\d+)?")
HTTP_OK = 200
ITEMS_KEYS = {"responses": "input", "chat": "messages"}
"""api -> where in a body the conversation stands (`Dialect.items_key`)"""


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
    process: str = ""
    """that sent it: what an earlier one was answered is not asked again by a later one"""


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """A request that was answered before, to an earlier process of this run."""

    index: int
    """among the answered requests of the call: each of them was paid for once"""
    answer: Any
    status: int


@dataclass(kw_only=True)
class ExchangeLog:
    """Appends to `folder/exchanges.jsonl`, behind what earlier processes of the same call wrote there."""

    folder: Path
    _recorded: dict[str, list[Recorded]] = field(default_factory=dict)
    _number: int = 0
    _before: dict[str, Any] = field(default_factory=dict)
    _items: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        for index, (body, row) in enumerate(_answered(self.folder / EXCHANGES)):
            if row["process"] == this_process():
                continue
            found = Recorded(index=index, answer=row["answer"], status=row["status"])
            self._recorded.setdefault(_form(body), []).append(found)

    def take(self, body: dict[str, Any]) -> Recorded | None:
        """The answer that this very request got before; each is given once."""
        found = self._recorded.get(_form(body))
        return found.pop(0) if found else None

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
            process=this_process(),
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


@cache
def this_process() -> str:
    """Differs from that of any other process of this boot, one with the same pid included."""
    stat = tree.read_stat(os.getpid())
    return f"{os.getpid()}-{stat.start_ticks if stat else ''}"


def _form(body: dict[str, Any]) -> str:
    """What two requests share that ask the same. Results of tools are compared without their numbers: a command that is
    run again says another time."""
    return json.dumps({key: _timeless(value) for key, value in body.items()}, sort_keys=True, default=dict)


def _timeless(items: Any) -> Any:
    if not isinstance(items, list):
        return items
    return [
        {**item, name: NUMBERS.sub("#", item[name])} if isinstance(item, dict) and name else item
        for item in items
        for name in [_result_key(item)]
    ]


def _result_key(item: Any) -> str:
    """Where an item of a conversation holds what a tool gave back; empty where it holds none."""
    if not isinstance(item, dict):
        return ""
    name = "output" if item.get("type") == "function_call_output" else "content" if item.get("role") == "tool" else ""
    return name if isinstance(item.get(name), str) else ""


def _answered(path: Path) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """(body, line) of every request that was answered, in order. A line that a kill cut short is cut off, so that the
    next one stands by itself."""
    raw = path.read_bytes() if path.is_file() else b""
    num_whole = raw.rfind(b"\n") + 1
    if num_whole < len(raw):
        os.truncate(path, num_whole)
    items: list[Any] = []
    fixed: dict[str, Any] = {}
    for line in raw[:num_whole].splitlines():
        row = json.loads(line)
        if row["number"] == 1:  # of another process
            items, fixed = [], {}
        items = items[: row["num_kept_items"]] + row["items"]
        fixed = {key: value for key, value in fixed.items() if key not in row["dropped"]} | row["request"]
        if row["status"] == HTTP_OK and not row["error"]:
            yield {**fixed, ITEMS_KEYS[row["api"]]: items}, row
