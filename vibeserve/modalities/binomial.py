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


def poisson_quantile(mean: float, *, confidence: float) -> int:
    """The smallest count that a Poisson variable of this mean does not exceed with probability `confidence`."""
    number, log_probability = 0, -mean
    reached = math.exp(log_probability)
    # the mean is a sum over tokens: beyond ten deviations nothing is left to reach
    most = math.ceil(mean + 10 * math.sqrt(mean) + 20)
    while reached < confidence and number < most:
        number += 1
        log_probability += math.log(mean / number) if mean > 0 else -math.inf
        reached += math.exp(log_probability)
    return number
