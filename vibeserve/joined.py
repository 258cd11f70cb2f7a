"""Windows of several servers as if one had served them: one after the other on a common time line.

Percentiles of a certification start are taken over all of its windows, also where each had a server of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vibeserve.contract import Record
from vibeserve.core.nouns import Reply
from vibeserve.roles.evaluator import Series, merged

GAP_S = 1.0
SHIFTED = (Record, Reply)
"""records whose times are all known; a target's own type may hold others"""


def joined(parts: Sequence[Series]) -> list[Series]:
    """One series of all parts, each behind the one before; the parts as they are where a record's type is a target's
    own."""
    if len(parts) < 2 or any(type(record) not in SHIFTED for part in parts for record in part.replies):
        return list(parts)
    moved, offset_s = [], 0.0
    for part in parts:
        moved.append(_shifted(part, by_s=offset_s))
        ends = [record.end_s for record in part.replies] + [window["end_s"] for window in part.windows]
        offset_s += max(ends, default=0.0) + GAP_S
    return [merged(moved)]


def _shifted(series: Series, *, by_s: float) -> Series:
    windows = tuple(window | {name: window[name] + by_s for name in ("start_s", "end_s")} for window in series.windows)
    return replace(series, windows=windows, replies=tuple(_later(record, by_s=by_s) for record in series.replies))


def _later(record: Record, *, by_s: float) -> Record:
    moved = replace(
        record, scheduled_s=record.scheduled_s + by_s, sent_s=record.sent_s + by_s, end_s=record.end_s + by_s,
        marks=tuple((at_s + by_s, mark) for at_s, mark in record.marks),
    )  # fmt: skip
    if isinstance(moved, Reply):
        return replace(moved, chunks=tuple(chunk._replace(at_s=chunk.at_s + by_s) for chunk in moved.chunks))
    return moved
