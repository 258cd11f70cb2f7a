"""Output that is computed in a warm-up and shown in the window behind it (class 34). Pure.

A slice lasts from the moment at which a contender goes on to the one at which it is stopped; the window is its later
part. In a steady load no part of a slice differs from another: the load is the same before and after the window's
start, and nothing tells a server where that is but the clock. So what came in the warm-ups is compared with what comes
in pieces of the same length that begin anywhere in the slices (one that runs over the end goes on at the beginning).
Refused is a warm-up that brings less than nearly every such draw, where that buys more than `MAX_GAIN` of the rate.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from vibeserve.contract import Record
from vibeserve.core.nouns import Refusal, Reply

GATE = "timing"
HELD_BACK = "held_back"
MAX_GAIN = 0.03
"""most that the windows' rate may lie above that of the whole slices for this to be left alone: what caches and clocks
that are cold after a stop explain"""
NUM_DRAWS = 4_000
FALSE_ALARM = 1e-3
"""share of draws that may bring as little as the warm-ups: by exchange of places, one honest server in a thousand whose
gain is beyond the limit by chance"""
SETTLE_S = 0.2
"""after a contender goes on, of which nothing is asked: connections wake up, caches are cold"""
MIN_WARMUP_S = 0.5
"""beyond that; shorter warm-ups hide next to nothing and are not looked at"""
MIN_SLICES = 3
MIN_OUTPUTS = 50
"""of all slices: fewer say nothing of a rate"""


@dataclass(frozen=True, kw_only=True)
class Span:
    """One slice in active seconds: it went on at `resumed_s`; its window is [start_s, end_s)."""

    resumed_s: float
    start_s: float
    end_s: float


def held_back(records: Sequence[Record], spans: Sequence[Span], *, seed: int) -> Refusal | None:
    """The refusal of a server whose warm-ups are poorer than its windows; None where they are alike, or where there is
    too little to say. `records` are of one load; `spans` leave out a server's first slice: it begins with prefills."""
    settled = [replace(span, resumed_s=span.resumed_s + SETTLE_S) for span in spans]
    spans = [span for span in settled if span.start_s - span.resumed_s >= MIN_WARMUP_S and span.start_s < span.end_s]
    times, totals = _outputs(records)
    rows = [_Slice(span=span, times=times, totals=totals) for span in spans]
    if len(rows) < MIN_SLICES or sum(row.num for row in rows) < MIN_OUTPUTS:
        return None
    warm = sum(row.between(row.span.resumed_s, row.span.start_s) for row in rows)
    window_s = sum(span.end_s - span.start_s for span in spans)
    whole_s = sum(span.end_s - span.resumed_s for span in spans)
    total = sum(row.num for row in rows)
    gain = (total - warm) / window_s / (total / whole_s) - 1
    if gain <= MAX_GAIN:
        return None
    generator = random.Random(f"hoard-{seed}")
    as_poor = sum(sum(row.drawn(generator) for row in rows) <= warm for _ in range(NUM_DRAWS))
    share = (as_poor + 1) / (NUM_DRAWS + 1)
    if share > FALSE_ALARM:
        return None
    text = (
        f"{warm:.0f} of {total:.0f} outputs came in the warm-ups, which are {1 - window_s / whole_s:.0%} of the time: "
    )
    text += f"the windows' rate is {gain:.0%} above that from resume to pause ({len(rows)} slices)"
    return Refusal(gate=GATE, reason_class=HELD_BACK, text=text)


@dataclass(frozen=True, kw_only=True)
class _Slice:
    span: Span
    times: Sequence[float]
    totals: Sequence[float]
    """outputs before the first time, up to and with it, ..."""

    @property
    def num(self) -> float:
        return self.between(self.span.resumed_s, self.span.end_s)

    def between(self, start_s: float, end_s: float) -> float:
        return self.totals[bisect_left(self.times, end_s)] - self.totals[bisect_left(self.times, start_s)]

    def drawn(self, generator: random.Random) -> float:
        """Outputs of a piece as long as the warm-up that begins anywhere."""
        start_s, end_s = self.span.resumed_s, self.span.end_s
        first_s = generator.uniform(start_s, end_s)
        last_s = first_s + self.span.start_s - start_s
        if last_s <= end_s:
            return self.between(first_s, last_s)
        return self.between(first_s, end_s) + self.between(start_s, start_s + last_s - end_s)


def _outputs(records: Sequence[Record]) -> tuple[list[float], list[float]]:
    """When outputs came, ascending, and how many had come by then: tokens of text, marks of other replies, or the
    reply itself."""
    events: list[tuple[float, float]] = []
    for record in records:
        if isinstance(record, Reply):
            events += [(chunk.at_s, float(len(chunk.token_ids) or 1)) for chunk in record.chunks]
        elif record.marks:
            events += [(at_s, 1.0) for at_s, _ in record.marks]
        elif record.error is None:
            events.append((record.end_s, 1.0))
    events.sort()
    return [at_s for at_s, _ in events], [0.0, *accumulate(num for _, num in events)]
