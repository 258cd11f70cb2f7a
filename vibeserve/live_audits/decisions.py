"""Pure: from times of paired requests to a word on them.

Every limit is one on a ratio of times that were taken in turns on one server, so a machine's speed does not matter. A
refusal needs the whole bootstrap interval beyond the limit: noise widens it and refuses nobody. A time that is missing
is not a good one: it refuses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from vibeserve.benchmark.statistics import MIN_PAIRS, ratio_interval
from vibeserve.contract import CUT, Record
from vibeserve.core.nouns import RatioInterval, Reply

MAX_GAIN = 1.10
"""most that work which looks alike may be faster than fresh work: 10%, rule 7 (MLPerf Inference, TEST04)"""
MIN_SAVING_S = 2e-3
"""a smaller saving is no reuse: a tokenizer that knows the words, a warm cache line. TEST05 is milder below 0.2 ms"""
RESOLUTION_S = 1e-3
"""less than this the load generator does not tell apart: a turn of its loop"""


def speed_up(reference_s: Sequence[float], audited_s: Sequence[float], *, seed: int) -> RatioInterval | None:
    """How many times faster the audited times are than the reference times, pair by pair; None where there are too few
    pairs, or one that is no positive number."""
    usable = all(math.isfinite(value) and value > 0 for value in (*reference_s, *audited_s))
    if len(reference_s) != len(audited_s) or len(audited_s) < MIN_PAIRS or not usable:
        return None
    logs = [math.log(slow / fast) for slow, fast in zip(reference_s, audited_s, strict=True)]
    return ratio_interval(logs, seed=seed)


def saved_s(reference_s: Sequence[float], audited_s: Sequence[float]) -> float:
    """Seconds that the audited work takes less, in the median of the pairs; infinite where one is no number."""
    saved = [slow - fast for slow, fast in zip(reference_s, audited_s, strict=False)]
    return median(saved) if saved and all(map(math.isfinite, saved)) else math.inf


def gain_problem(
    interval: RatioInterval | None, *, limit: float, what: str, saving_s: float, least_s: float = MIN_SAVING_S
) -> str:
    """Why the gain is refused; empty where it may be noise, lies within the limit, or saves next to nothing."""
    if interval is None:
        return f"{what}: the times could not be compared"
    if interval.ci_low <= limit or saving_s < least_s:
        return ""
    return f"{what} {shown(interval)} times as fast, at most {limit:g} is allowed"


def shown(interval: RatioInterval) -> str:
    """`1.02 [0.97, 1.06]`"""
    return f"{interval.ratio:.3g} [{interval.ci_low:.3g}, {interval.ci_high:.3g}]"


def interval_figures(interval: RatioInterval | None, *, prefix: str = "") -> dict[str, float]:
    """ratio, ci_low, ci_high, num_pairs; empty without an interval."""
    if interval is None:
        return {}
    values = {"ratio": interval.ratio, "ci_low": interval.ci_low, "ci_high": interval.ci_high}
    return {f"{prefix}{name}": value for name, value in values.items()} | {f"{prefix}num_pairs": interval.num_pairs}


def failed_problem(records: Sequence[Record], *, num_sent: int) -> str:
    """Why requests of an audit count as failed; empty where every one was answered."""
    errors = [record.error for record in records if record.error is not None]
    num_lost = num_sent - len(records)
    if not errors and not num_lost:
        return ""
    told = ", ".join(sorted({"no answer in time" if error == CUT else error for error in errors})[:3])
    return f"{len(errors) + num_lost} of {num_sent} requests failed: {told or 'no record of them'}"


def reply_s(record: Record) -> float:
    """Seconds from sending to the last byte, or that the client waited where it paces the request itself; infinite for
    a failed request."""
    if record.error is not None:
        return math.inf
    return record.end_s - record.sent_s if record.waited_s is None else record.waited_s


def first_output_s(record: Record) -> float:
    """Seconds from sending to the first output: of text the first chunk, else the first mark, else the end."""
    if record.error is not None:
        return math.inf
    if isinstance(record, Reply):
        times = [chunk.at_s for chunk in record.chunks if chunk.text or chunk.token_ids]
    else:
        times = [at_s for at_s, _ in record.marks]
    return min(times, default=record.end_s) - record.sent_s


def after_first_s(record: Record) -> float:
    """Seconds from the first output to the last byte, at least what the client can tell: all may come in one read."""
    return max(RESOLUTION_S, reply_s(record) - first_output_s(record)) if record.error is None else math.inf


def block_s(records: Sequence[Record]) -> float:
    """Seconds from the first request's start to the last one's end, or that clients waited who pace their requests
    themselves, all together; infinite where one failed or none is there."""
    if not records or any(record.error is not None for record in records):
        return math.inf
    waited = [record.waited_s for record in records if record.waited_s is not None]
    if waited:
        return sum(waited)
    return max(record.end_s for record in records) - min(record.sent_s for record in records)


def decode_s(records: Sequence[Record]) -> float:
    """Seconds from the last of the block's first outputs to its last byte, at least what the client can tell; infinite
    where one failed or none is there. However the prompts were read, in turn or at once, they are behind it by then."""
    if not records or any(record.error is not None for record in records):
        return math.inf
    first = max(record.sent_s + first_output_s(record) for record in records)
    return max(RESOLUTION_S, max(record.end_s for record in records) - first)
