"""Receiver operating characteristics of a gate: what it refuses of right and wrong servers, by its strictness. Pure.

Every trial (the replies that one judgement sees) has a *critical factor*: how many times its shipped tolerances the
gate would have to allow to pass it. Honest trials should lie below 1, faulty ones above.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vibeserve.modalities.binomial import binomial_probability

FACTORS = tuple(2.0 ** (step / 2) for step in range(-10, 13))
"""1/32 to 64 times the shipped tolerances; 1 is among them"""
NEVER = 2 * FACTORS[-1]
"""critical factor of a trial that even the mildest gate refuses"""


@dataclass(frozen=True, kw_only=True)
class RocPoint:
    """The gate at `factor` times the shipped tolerances: shares of honest and of faulty trials that it refuses."""

    factor: float
    false_refusals: float
    detected: float


def critical_factor(is_refused: Callable[[float], bool], *, factors: Sequence[float] = FACTORS) -> float:
    """The smallest of ascending `factors` at which the trial passes, by bisection; `NEVER` where it never does.

    A gate that is `factor` times as mild refuses less, hence one border; findings that no factor moves give `NEVER`.
    """
    place = bisect_left(factors, True, key=lambda factor: not is_refused(factor))
    return factors[place] if place < len(factors) else NEVER


def roc_points(honest: Sequence[float], faulty: Sequence[float]) -> tuple[RocPoint, ...]:
    """One point for each factor, from the critical factors of honest and faulty trials."""
    return tuple(
        RocPoint(
            factor=factor, false_refusals=share_refused(honest, factor=factor),
            detected=share_refused(faulty, factor=factor),
        )
        for factor in FACTORS
    )  # fmt: skip


def share_refused(critical: Sequence[float], *, factor: float = 1.0) -> float:
    """Of the trials, by their critical factors; NaN without any."""
    return sum(value > factor for value in critical) / len(critical) if critical else math.nan


def auc(negatives: Sequence[float], positives: Sequence[float]) -> float | None:
    """Area under the ROC curve: the probability that a positive scores above a negative, ties counted half.

    Mann and Whitney's U over the number of pairs; None where either is empty.
    """
    if not negatives or not positives:
        return None
    ordered = sorted(negatives)
    above = 0.0
    for value in positives:
        below = bisect_left(ordered, value)
        ties = bisect_right(ordered, value) - below
        above += below + ties / 2
    return above / (len(ordered) * len(positives))


def upper_bound(num_seen: int, num_trials: int, *, confidence: float = 0.95) -> float:
    """Clopper and Pearson's one-sided upper bound of a share (1934), by bisection: what 0 of 200 does not exclude."""
    if num_seen >= num_trials:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(50):
        share = (low + high) / 2
        tail = sum(binomial_probability(number, num_trials, share) for number in range(num_seen + 1))
        low, high = (share, high) if tail > 1 - confidence else (low, share)
    return high
