"""Windows of several servers on one time line: percentiles over all of them, each request in its own window."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from load_samples import PIECES, reply, text_bundle

from vibeserve.benchmark import pooled_metrics
from vibeserve.contract import Record, Request
from vibeserve.joined import joined
from vibeserve.roles.evaluator import Series


def series(*seconds: float) -> Series:
    """A server with a window from 1 to 5 s, in which replies ended that took so long."""
    replies = tuple(
        replace(reply([(1.5 + taken, PIECES[0])], scheduled_s=1.5), marks=((1.5 + taken, "x"),)) for taken in seconds
    )
    return Series(name="a", windows=({"start_s": 1.0, "end_s": 5.0, "output_throughput": 1.0},), replies=replies)


def test_windows_follow_each_other_and_keep_their_own_requests() -> None:
    parts = [series(0.5, 0.7), series(0.6), series(2.0, 2.1, 2.2)]
    (whole,) = joined(parts)
    spans = [(window["start_s"], window["end_s"]) for window in whole.windows]
    assert all(before[1] < after[0] for before, after in pairwise(spans))
    bundle = text_bundle()
    for part, span in zip(parts, spans, strict=True):
        alone = pooled_metrics(part.replies, windows=[(1.0, 5.0)], bundle=bundle)
        moved = pooled_metrics(whole.replies, windows=[span], bundle=bundle)
        assert moved == pytest.approx(alone)
    pooled = pooled_metrics(whole.replies, windows=spans, bundle=bundle)
    assert pooled["num_finished"] == 6.0 and pooled["e2el_p50"] == pytest.approx(0.7)
    assert whole.replies[-1].marks[0][0] == pytest.approx(whole.replies[-1].end_s)


def test_one_series_is_what_it_is() -> None:
    only = series(0.5)
    assert joined([only]) == [only]


@dataclass(frozen=True, kw_only=True)
class OwnRecord(Record):
    partial_s: float = 0.0


def test_records_whose_times_are_a_targets_own_stay_apart() -> None:
    own = OwnRecord(request=Request(request_id="r"), end_s=2.0, partial_s=1.0)
    parts = [replace(series(), replies=(own,)), replace(series(), replies=(own,))]
    assert joined(parts) == parts
