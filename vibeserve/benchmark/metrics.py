"""From replies to the metrics of a window of active time.

Rules
- Tokens are counted by re-tokenising the text, for every server alike; a token belongs to the window in which it
  arrived. Tokens of failed replies are not counted; those of replies still in flight are.
- TTFT: from the scheduled time to the first token. E2EL: from the scheduled time to the last byte. TPOT: (last byte -
  first token) / (tokens - 1). ITL: gaps between consecutive instants at which new tokens arrived, so a burst is no row
  of zeros.
- Latencies are over the requests that ended inside the window. A failed request, and a finished one without any token,
  is one of infinite latency.
- Too few samples give no number (measurement rule 10): p50 needs 5 requests, p99 needs 662, the floor of MLPerf's early
  stopping. A percentile that falls on a failed request is infinite and therefore absent as well. Absent never means
  good: whoever decides on a missing value refuses.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from vibeserve.client.tokens import token_arrivals
from vibeserve.core.nouns import Reply
from vibeserve.spec import Slo

if TYPE_CHECKING:
    from tokenizers import Tokenizer

CUT = "cut"
MIN_SAMPLES = {50: 5, 99: 662}


@dataclass(frozen=True, kw_only=True)
class Timing:
    """One reply with its token arrivals, and the latencies that follow. Seconds."""

    reply: Reply
    arrivals: tuple[float, ...]

    @property
    def is_ended(self) -> bool:
        return self.reply.error != CUT

    @property
    def is_failed(self) -> bool:
        return self.is_ended and (self.reply.error is not None or not self.arrivals)

    @property
    def ttft_s(self) -> float:
        return math.inf if self.is_failed else self.arrivals[0] - self.reply.scheduled_s

    @property
    def e2el_s(self) -> float:
        return math.inf if self.is_failed else self.reply.end_s - self.reply.scheduled_s

    @property
    def tpot_s(self) -> float | None:
        """None for a reply of one token: it has no time between tokens."""
        if self.is_failed:
            return math.inf
        num_gaps = len(self.arrivals) - 1
        return (self.reply.end_s - self.arrivals[0]) / num_gaps if num_gaps else None

    def meets(self, slo: Slo) -> bool:
        return self.ttft_s <= slo.ttft_s and (self.tpot_s or 0.0) <= slo.tpot_s


def window_metrics(
    replies: Sequence[Reply], *, start_s: float, end_s: float, tokenizer: Tokenizer, slo: Slo
) -> dict[str, float]:
    """Metrics of the window [start_s, end_s) of active seconds. Names are those of `core.nouns.METRICS`, and
    diagnostics.

    Always there: output_throughput, request_throughput, goodput, num_finished, num_failed, num_tokens, num_in_flight,
    oldest_in_flight_s, sent_lag_max_s. There only with enough samples: {ttft,tpot,itl,e2el}_{p50,p99},
    mean_output_tokens.
    """
    return pooled_metrics(replies, windows=[(start_s, end_s)], tokenizer=tokenizer, slo=slo)


def pooled_metrics(
    replies: Sequence[Reply], *, windows: Sequence[tuple[float, float]], tokenizer: Tokenizer, slo: Slo
) -> dict[str, float]:
    """The same over the union of several disjoint windows: more samples for the percentiles."""
    if not windows or not all(start_s < end_s for start_s, end_s in windows):
        raise ValueError(f"windows must be non-empty intervals, not {list(windows)}")
    near = [
        reply
        for reply in replies
        if any(reply.scheduled_s < end_s and reply.end_s >= start_s for start_s, end_s in windows)
    ]
    timings = [
        Timing(reply=reply, arrivals=arrivals)
        for reply, arrivals in zip(near, token_arrivals(near, tokenizer=tokenizer), strict=True)
    ]
    ended = [timing for timing in timings if timing.is_ended and _inside(timing.reply.end_s, windows)]
    finished = [timing for timing in ended if not timing.is_failed]
    duration_s = sum(end_s - start_s for start_s, end_s in windows)
    num_tokens = sum(_inside(at_s, windows) for timing in timings if not timing.is_failed for at_s in timing.arrivals)
    metrics = {
        "output_throughput": num_tokens / duration_s,
        "request_throughput": len(finished) / duration_s,
        "goodput": sum(timing.meets(slo) for timing in finished) / duration_s,
        "num_tokens": float(num_tokens),
        "num_finished": float(len(finished)),
        "num_failed": float(len(ended) - len(finished)),
    }
    return metrics | _in_flight(timings, end_s=windows[-1][1]) | _latencies(ended, windows)


def _inside(at_s: float, windows: Sequence[tuple[float, float]]) -> bool:
    return any(start_s <= at_s < end_s for start_s, end_s in windows)


def _in_flight(timings: Sequence[Timing], *, end_s: float) -> dict[str, float]:
    """What a server that never answers hides: requests without an end at the window's end, and the oldest one's age."""
    ages_s = [
        end_s - timing.reply.scheduled_s
        for timing in timings
        if timing.reply.scheduled_s < end_s and (timing.reply.end_s >= end_s or not timing.is_ended)
    ]
    lag_s = max((timing.reply.sent_s - timing.reply.scheduled_s for timing in timings), default=0.0)
    return {
        "num_in_flight": float(len(ages_s)),
        "oldest_in_flight_s": max(ages_s, default=0.0),
        "sent_lag_max_s": lag_s,
    }


def _latencies(ended: Sequence[Timing], windows: Sequence[tuple[float, float]]) -> dict[str, float]:
    samples = {
        "ttft": [timing.ttft_s for timing in ended],
        "tpot": [tpot_s for timing in ended if (tpot_s := timing.tpot_s) is not None],
        "itl": [gap_s for timing in ended for gap_s in _gaps(timing)],
        "e2el": [timing.e2el_s for timing in ended],
    }
    metrics = {
        f"{name}_p{percent}": value
        for name, values in samples.items()
        for percent in MIN_SAMPLES
        if (value := percentile(values, percent)) is not None
    }
    lengths = [len(timing.arrivals) for timing in ended if not timing.is_failed]
    if lengths:
        metrics["mean_output_tokens"] = sum(lengths) / len(lengths)
    return metrics


def _gaps(timing: Timing) -> Iterator[float]:
    if timing.is_failed:
        yield math.inf
        return
    instants = sorted(set(timing.arrivals))
    yield from (after - before for before, after in pairwise(instants))


def percentile(values: Sequence[float], percent: int) -> float | None:
    """Nearest-rank percentile, or None where the samples are too few for it or it is infinite."""
    if len(values) < MIN_SAMPLES[percent]:
        return None
    value = sorted(values)[math.ceil(percent / 100 * len(values)) - 1]
    return value if math.isfinite(value) else None
