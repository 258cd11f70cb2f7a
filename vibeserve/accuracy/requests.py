"""What holds for the records of every workload: requests are answered, none is left waiting, no output comes twice."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import accumulate

from vibeserve.accuracy.documents import Scores
from vibeserve.accuracy.limits import figure
from vibeserve.contract import CUT, Record, Request
from vibeserve.core.documents import digest_of, finite_data, to_data
from vibeserve.core.nouns import Refusal, Reply

GATE = "requests"
STALL_FACTOR = 3.0
MIN_STALL_S = 5.0
OVERTAKEN_FACTOR = 2
OVERTAKEN_SLACK = 4
"""one may be overtaken so many times the requests in flight, and so many more: a scheduler may reorder, not starve"""
MIN_STARVED = 2
ERROR_CHARACTERS = 120
MIN_STALE = 3
"""repeated outputs, beyond their first: fewer may be chance"""
STALE_FACTOR = 2.0
"""over the bound of a limit: a pool of few replies may lie above the bound itself by chance"""


def request_refusals(records: Sequence[Record]) -> list[Refusal]:
    """Failed requests, none that finished, and requests left waiting while others are answered."""
    failed = [record for record in records if record.error not in (None, CUT)]
    complete = [record for record in records if record.error is None]
    refusals = []
    if failed:
        example = f"{failed[0].request.request_id}: {str(failed[0].error)[:ERROR_CHARACTERS]}"
        text = f"{len(failed)} of {len(records)} requests failed, such as {example}"
        refusals.append(Refusal(gate=GATE, reason_class="failed_requests", text=text))
    if not complete:
        text = "no request finished, so nothing can be judged"
        return [*refusals, Refusal(gate=GATE, reason_class="missing_replies", text=text)]
    refusals += _stalled([record for record in records if record.error == CUT], complete)
    for load in _by_load(records):
        refusals += _starved(*([record for record in load if record.error == error] for error in (None, CUT)))
    return refusals


def _by_load(records: Sequence[Record]) -> list[list[Record]]:
    """Times of different loads cannot be compared."""
    loads: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        loads[record.load_id].append(record)
    return list(loads.values())


def _stalled(cut: Sequence[Record], complete: Sequence[Record]) -> Iterator[Refusal]:
    """Requests still unanswered after several times the slowest answered one: the others were served at their cost."""
    slowest_s = max(record.end_s - record.scheduled_s for record in complete)
    limit_s = max(MIN_STALL_S, STALL_FACTOR * slowest_s)
    stalled = [record for record in cut if record.end_s - record.scheduled_s > limit_s]
    if stalled:
        name = stalled[0].request.request_id
        text = f"{name} is in flight for more than {limit_s:.1f} s, the slowest answered request took "
        text += f"{slowest_s:.1f} s ({len(stalled)} of {len(cut)} requests in flight)"
        yield Refusal(gate=GATE, reason_class="stalled_requests", text=text)


def _starved(complete: Sequence[Record], cut: Sequence[Record]) -> Iterator[Refusal]:
    """Requests without any output while many that were sent later got their whole reply: medians improve at their
    cost, and the few that wait fall out of the window."""
    limit = OVERTAKEN_SLACK + OVERTAKEN_FACTOR * _peak_in_flight([*complete, *cut])
    ordered = sorted(complete, key=lambda record: record.sent_s)
    counts = {record.request.request_id: _num_overtaking(record, ordered) for record in (*complete, *cut)}
    starved = [name for name, count in counts.items() if count > limit]
    if len(starved) >= MIN_STARVED:
        text = f"{starved[0]} had no output yet when {counts[starved[0]]} requests that were sent later had their "
        text += f"whole reply; up to {limit} are a scheduler's right ({len(starved)} of {len(counts)} requests)"
        yield Refusal(gate=GATE, reason_class="starved_requests", text=text)


def _num_overtaking(record: Record, ordered: Sequence[Record]) -> int:
    """How many of `ordered` (by the time they were sent) were sent after `record` and ended before its first output."""
    first_s = _first_output_s(record)
    later = ordered[bisect_right(ordered, record.sent_s, key=_sent_s) : bisect_left(ordered, first_s, key=_sent_s)]
    return sum(other.end_s < first_s for other in later)


def _sent_s(record: Record) -> float:
    return record.sent_s


def _first_output_s(record: Record) -> float:
    """When its first part came, where `send` or the wire noted it; else its end."""
    chunks = record.chunks if isinstance(record, Reply) else ()
    times = [at_s for at_s, _ in record.marks] + [chunk.at_s for chunk in chunks if chunk.text or chunk.token_ids]
    return min(times, default=record.end_s)


def _peak_in_flight(records: Sequence[Record]) -> int:
    """Most requests that were in flight at one moment; an end at the moment of a start comes first."""
    moments = sorted(
        [(record.sent_s, 1) for record in records] + [(record.end_s, -1) for record in records],
    )
    running = accumulate(step for _, step in moments)
    return max(running, default=0)


def stale_refusals(records: Sequence[Record], scores: Scores) -> Iterator[Refusal]:
    """Outputs that were sent for an earlier, different request, too, and taken together are not right for these.

    Where few outputs are possible, they rightly repeat: then the repeated ones keep the limits like all others.
    """
    scored = {reply.request_id: reply for reply in scores.replies}
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in sorted(records, key=lambda each: each.sent_s):
        if record.error is None and record.served is not None and record.request.request_id in scored:
            groups[digest_of(finite_data(record.served))].append(record)
    repeated = [record for group in groups.values() for record in group if _asks_differently(record, than=group[0])]
    pool = [scored[record.request.request_id] for record in repeated]
    if len(pool) < MIN_STALE:
        return
    for limit in scores.limits:
        value = figure(pool, limit=limit)
        if value is not None and value > STALE_FACTOR * limit.bound:
            text = f"{len(pool)} of {len(scored)} replies repeat the output to an earlier, different request; the "
            text += f"{limit.statistic.value} of {limit.distance} over them is {value:.4g}, far above {limit.bound:g}"
            yield Refusal(gate="accuracy", reason_class="stale", text=text)
            return


def _asks_differently(record: Record, *, than: Record) -> bool:
    return _question(record.request) != _question(than.request)


def _question(request: Request) -> str:
    """What is asked, without the request's name and time."""
    return digest_of(finite_data({**to_data(request), "request_id": "", "arrival_s": 0.0}))
