"""Requests that wait while later ones are answered: what a scheduler may do, and what it may not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vibeserve.accuracy.requests import request_refusals
from vibeserve.contract import CUT, Record, Request

STREAMS = 4
LIMIT = 4 + 2 * STREAMS


def record(name: str, *, sent_s: float, end_s: float, first_s: float | None = None, error: str | None = None) -> Record:
    marks = () if first_s is None else ((first_s, "part"),)
    return Record(
        request=Request(request_id=name), output="x", marks=marks, scheduled_s=sent_s, sent_s=sent_s, end_s=end_s,
        error=error,
    )  # fmt: skip


def served(*, streams: int, num: int) -> list[Record]:
    """Closed loops, each request a tenth of a second."""
    return [
        record(f"s{stream}-{k}", sent_s=0.1 * k + 0.01, end_s=0.1 * (k + 1), first_s=0.1 * k + 0.05)
        for stream in range(streams)
        for k in range(num)
    ]


def classes(records: list[Record]) -> set[str]:
    return {refusal.reason_class for refusal in request_refusals(records)}


def test_closed_loops_in_their_order_pass() -> None:
    assert classes(served(streams=STREAMS, num=20)) == set()


@pytest.mark.parametrize("error", [None, CUT])
def test_the_newest_first_starves_the_oldest(error: str | None) -> None:
    """Two of four streams are served, the other two wait for two seconds: less than a stall, and p50 is splendid."""
    waiting = [record(f"w{k}", sent_s=0.0, end_s=2.05, first_s=None if error else 2.0, error=error) for k in range(2)]
    records = [*waiting, *served(streams=2, num=20)]
    assert classes(records) == {"starved_requests"}
    (refusal,) = request_refusals(records)
    assert refusal.text == (
        f"w0 had no output yet when {40 if error else 38} requests that were sent later had their whole reply; "
        f"up to {LIMIT} are a scheduler's right (2 of 42 requests)"
    )


def test_a_scheduler_may_reorder_within_bounds() -> None:
    """Long prompts behind short ones, for as many turns as there are streams."""
    late = [record(f"w{k}", sent_s=0.0, end_s=1.0, first_s=0.55) for k in range(2)]
    assert classes([*late, *served(streams=2, num=20)]) == set()


def test_a_long_reply_that_has_begun_is_overtaken_by_right() -> None:
    long = [record(f"w{k}", sent_s=0.0, end_s=2.0, first_s=0.05) for k in range(2)]
    assert classes([*long, *served(streams=2, num=20)]) == set()


def test_loads_have_clocks_of_their_own() -> None:
    """What was sent in another load was sent neither before nor after."""
    late = [record(f"w{k}", sent_s=0.0, end_s=2.05, first_s=2.0) for k in range(2)]
    others = [replace(each, load_id="second") for each in served(streams=2, num=20)]
    assert classes([*late, *others]) == set()
    assert classes([*(replace(each, load_id="second") for each in late), *others]) == {"starved_requests"}


@pytest.mark.parametrize(("num_overtaking", "is_refused"), [(LIMIT, False), (LIMIT + 1, True)])
def test_what_starves_is_counted_in_requests_and_never_in_seconds(num_overtaking: int, is_refused: bool) -> None:
    """A cheat that let nobody wait for more than 40 s got through on a busy machine: 11 requests were served meanwhile,
    which a scheduler may do. The same order at any pace has the same word."""
    for pace in (1.0, 100.0):
        late = [
            record(f"w{k}", sent_s=0.0, end_s=pace * (num_overtaking + 2), first_s=pace * (num_overtaking + 1.5))
            for k in range(2)
        ]
        others = [
            record(f"s{k}", sent_s=pace * (k + 0.1), end_s=pace * (k + 1), first_s=pace * (k + 0.5))
            for k in range(num_overtaking)
        ]
        # one more stream, so that as many are in flight as the limit is of
        steady = [record("long", sent_s=0.0, end_s=pace * (num_overtaking + 1), first_s=0.1)]
        assert classes([*late, *others, *steady]) == ({"starved_requests"} if is_refused else set())
