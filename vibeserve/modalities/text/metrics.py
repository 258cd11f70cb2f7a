"""From replies of text to the metrics of windows.

- Tokens are counted by re-tokenising the text, for every server alike; a token belongs to the window in which it
  arrived. Tokens of failed replies are not counted; those of replies still in flight are.
- TTFT: from the scheduled time to the first token. E2EL: from the scheduled time to the last byte. TPOT: (last byte -
  first token) / (tokens - 1). ITL: gaps between consecutive instants at which new tokens arrived, so a burst is no row
  of zeros.
- Latencies are over the requests that ended inside the windows. A failed request, and a finished one without any token,
  is one of infinite latency.
- Too few samples give no number (measurement rule 10), and neither does a percentile that falls on a failed request
  (`contract.percentile`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from vibeserve.contract import CUT, MIN_SAMPLES, Metric, Window, percentile
from vibeserve.core.nouns import METRICS, Reply
from vibeserve.modalities.text.tokens import token_arrivals
from vibeserve.spec import Slo

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_LATENCIES = tuple(f"{name}_p{percent}" for name in ("ttft", "tpot", "itl", "e2el") for percent in MIN_SAMPLES)
MEASURED: tuple[Metric, ...] = tuple(
    METRICS[name] for name in ("output_throughput", "request_throughput", "goodput", *_LATENCIES)
)
"""request_throughput, goodput and E2EL are text's own: a reply without a token is a failed one, an SLO bounds TTFT and
TPOT"""


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
        is_in_time = not slo.e2el_s or self.e2el_s <= slo.e2el_s
        return is_in_time and self.ttft_s <= slo.ttft_s and (self.tpot_s or 0.0) <= slo.tpot_s


def measure_text(
    replies: Sequence[Reply], windows: Sequence[Window], *, tokenizer: Tokenizer, slo: Slo
) -> dict[str, float]:
    """`MEASURED` and diagnostics over the union of disjoint windows.

    Always there: output_throughput, request_throughput, goodput, num_tokens, num_finished, num_failed. There only with
    enough samples: {ttft,tpot,itl,e2el}_{p50,p99}, mean_output_tokens.
    """
    timings = [
        Timing(reply=reply, arrivals=arrivals)
        for reply, arrivals in zip(replies, token_arrivals(replies, tokenizer=tokenizer), strict=True)
    ]
    ended = [timing for timing in timings if timing.is_ended and _inside(timing.reply.end_s, windows)]
    finished = [timing for timing in ended if not timing.is_failed]
    duration_s = sum(window.end_s - window.start_s for window in windows)
    num_tokens = sum(_inside(at_s, windows) for timing in timings if not timing.is_failed for at_s in timing.arrivals)
    metrics = {
        "output_throughput": num_tokens / duration_s,
        "request_throughput": len(finished) / duration_s,
        "goodput": sum(timing.meets(slo) for timing in finished) / duration_s,
        "num_tokens": float(num_tokens),
        "num_finished": float(len(finished)),
        "num_failed": float(len(ended) - len(finished)),
    }
    return metrics | _latencies(ended)


def _inside(at_s: float, windows: Sequence[Window]) -> bool:
    return any(window.holds(at_s) for window in windows)


def _latencies(ended: Sequence[Timing]) -> dict[str, float]:
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
