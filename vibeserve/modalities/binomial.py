"""Counts of rare events in samples of any size: what a share allows by chance. Pure."""

from __future__ import annotations

import math
from functools import lru_cache


@lru_cache(maxsize=4096)
def binomial_quantile(num_trials: int, share: float, *, confidence: float) -> int:
    """The smallest count that a binomial variable does not exceed with probability `confidence`."""
    reached = 0.0
    for number in range(num_trials + 1):
        reached += binomial_probability(number, num_trials, share)
        if reached >= confidence:
            return number
    return num_trials


def binomial_probability(number: int, num_trials: int, share: float) -> float:
    """Of exactly `number` events; by logarithms, so that no factorial overflows."""
    if share <= 0.0 or share >= 1.0:
        return float(number == (num_trials if share >= 1.0 else 0))
    log = math.lgamma(num_trials + 1) - math.lgamma(number + 1) - math.lgamma(num_trials - number + 1)
    return math.exp(log + number * math.log(share) + (num_trials - number) * math.log1p(-share))
