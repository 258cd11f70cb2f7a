"""Does it last? Pure tests for a sustained run: first half against second half, and the slope of memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from vibeserve.benchmark.statistics import ratio_interval
from vibeserve.core.nouns import RatioInterval
from vibeserve.errors import RefusedError

NUM_BINS = 20
MAX_DECAY = 0.05
"""largest loss of the second half against the first that is still steady"""


def half_ratio(token_times: Sequence[float], *, start_s: float, end_s: float, seed: int) -> RatioInterval:
    """Throughput of the second half over the first, from the arrival times of tokens in [start_s, end_s).

    The span is cut into equal bins; bin k of the second half pairs with bin k of the first. RefusedError when a bin is
    empty: a server that stood still for a whole bin is not steady, and has no ratio.
    """
    width_s = (end_s - start_s) / NUM_BINS
    counts = [0] * NUM_BINS
    for at_s in token_times:
        if start_s <= at_s < end_s:
            counts[min(int((at_s - start_s) / width_s), NUM_BINS - 1)] += 1
    if not all(counts):
        raise RefusedError(f"no token arrived in {counts.count(0)} of {NUM_BINS} stretches of {width_s:.1f} s")
    half = NUM_BINS // 2
    logs = [math.log(late / early) for early, late in zip(counts[:half], counts[half:], strict=True)]
    return ratio_interval(logs, seed=seed)


def decays(halves: RatioInterval) -> bool:
    """Whether the second half is slower for certain: even the upper end of the interval is beyond the limit."""
    return halves.ci_high < 1 - MAX_DECAY


@dataclass(frozen=True, kw_only=True)
class MemorySlope:
    """Growth of resident memory. Theil-Sen: the median of all pairwise slopes, so single spikes do not matter."""

    gib_per_h: float
    growth_share: float
    """growth over the span as a share of the median"""


def memory_slope(samples: Sequence[tuple[float, float]]) -> MemorySlope:
    """From (seconds, GiB) samples, three or more at distinct times; ValueError otherwise.

    Sen, Estimates of the Regression Coefficient Based on Kendall's Tau, 1968.
    """
    slopes = [(y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in combinations(samples, 2) if x1 != x2]
    if len(samples) < 3 or not slopes:
        raise ValueError(f"a memory slope needs three samples at distinct times, not {len(samples)}")
    slope = median(slopes)
    times = [at_s for at_s, _ in samples]
    level = median(gib for _, gib in samples)
    return MemorySlope(gib_per_h=slope * 3600, growth_share=slope * (max(times) - min(times)) / level)
