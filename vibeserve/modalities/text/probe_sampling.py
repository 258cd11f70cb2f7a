"""Whether tokens were drawn from the distribution that was asked for: exact tests by simulation, no threshold by hand.

Three statistics of `n` single draws of the next token after one prompt, each against its own distribution under the
reference (Model Equality Testing, Gao et al. 2024, asks the same of whole completions with a kernel; for one token the
reference's distribution is known, so that the tests need no second sample):

- sharpness: the sum of log p(x). The sufficient statistic of a temperature: p^(1/T) is an exponential family in it.
- frequencies: Pearson's chi-square over buckets of at least `MIN_EXPECTED` expected draws; other shapes.
- repeats: pairs of equal tokens; constant, few or shared seeds.

p-values are Monte Carlo's, (1 + as extreme) / (1 + simulated), valid at any number of simulations (Besag and Clifford
1991); few are simulated unless the draws look odd.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FALSE_ALARM = 1e-4
"""probability that an honest server fails the check, over all of its tests together"""
NUM_DRAWS = 48
"""of one test: enough to tell T = 1 from 0.5 and a nucleus from none on any prompt that is not nearly certain"""
NUM_SAMPLES = 4
"""of one server: seeded, unseeded, another temperature, a nucleus"""
STATISTICS = ("sharpness", "frequencies", "repeats")
MIN_EXPECTED = 5.0
"""draws of a bucket: the usual rule for Pearson's statistic; its p-value is simulated, hence right anyway"""
FEW, MANY = 2_000, 400_000
MIN_EXTREME = 10
"""so many simulations as extreme as the draws, and the p-value is known well enough not to simulate more"""
CHUNK = 20_000
"""simulations at once: 8 MB of ids"""
NUM_TESTS = NUM_SAMPLES * len(STATISTICS)
BORDER_NATS = 0.3
"""a token may be so much less likely than the last one of a nucleus and still be in it after rounding: the gate's bound
of the 99th percentile of log-probabilities"""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The distribution that a request asks for."""

    probs: Floats
    """[vocabulary], sums to 1"""
    allowed: NDArray[np.bool_]
    """[vocabulary]: what may be drawn; wider than the support by the rounding of a nucleus' border"""


def wanted(logprobs: Sequence[float], *, temperature: float = 1.0, top_p: float = 1.0) -> Wanted:
    """p^(1/T), cut to the smallest set of most likely tokens that holds `top_p` (Holtzman et al. 2020), normalised.

    Where many tokens are about as likely, rounding reorders them across the border: those are allowed, too.
    """
    scaled = np.asarray(logprobs, dtype=np.float64) / temperature
    probs = np.exp(scaled - scaled.max())
    probs /= probs.sum()
    is_kept = _mass_before(probs) < top_p
    kept = np.where(is_kept, probs, 0.0)
    return Wanted(probs=kept / kept.sum(), allowed=probs >= probs[is_kept].min() * np.exp(-BORDER_NATS / temperature))


def robust_top_p(logprobs: Sequence[float], *, around: float = 0.6) -> float:
    """A top_p in the middle of a likely token's share of the mass, so that rounding leaves the nucleus what it is.

    Of the tokens whose share begins below `around`, the one that reaches beyond it, or the likeliest near it.
    """
    probs = np.exp(np.asarray(logprobs, dtype=np.float64))
    before = _mass_before(probs)
    near = np.abs(before + probs / 2 - around) <= 0.3
    if not near.any():
        return around
    best = int(np.argmax(np.where(near, probs, 0.0)))
    return float(round(before[best] + probs[best] / 2, 4))


def is_refused(p_value: float) -> bool:
    """By Bonferroni over all tests of one server."""
    return p_value < FALSE_ALARM / NUM_TESTS


def entropy(logprobs: Sequence[float]) -> float:
    """Nats."""
    values = np.asarray(logprobs, dtype=np.float64)
    probs = np.exp(values)
    return float(-(probs * np.where(probs > 0, values, 0.0)).sum())


def _mass_before(probs: Floats) -> Floats:
    """[vocabulary]: probability of all tokens that are likelier; ties in the order of ids."""
    order = np.argsort(-probs, kind="stable")
    before = np.empty_like(probs)
    before[order] = np.cumsum(probs[order]) - probs[order]
    return before


class SamplingTest:
    """Tests of `num_draws` independent draws of one distribution. Deterministic by `seed`."""

    def __init__(self, target: Wanted, *, num_draws: int, seed: int) -> None:
        self._target = target
        self._num_draws = num_draws
        self._seed = seed
        self._logs = np.log(np.where(target.probs > 0, target.probs, target.probs[target.probs > 0].min()))
        self._cumulative = np.cumsum(target.probs)
        self._buckets, self._expected = _buckets(target.probs, num_draws)

    def p_values(self, drawn: Sequence[int]) -> dict[str, float]:
        """By statistic, and `support`: 0 where a token was drawn that must not be, else 1."""
        if len(drawn) != self._num_draws:
            raise ValueError(f"{len(drawn)} draws for a test of {self._num_draws}")
        ids = np.asarray(drawn, dtype=np.int64)
        size = len(self._target.probs)
        if ids.min() < 0 or ids.max() >= size or not self._target.allowed[ids].all():
            return {"support": 0.0, **dict.fromkeys(STATISTICS, 0.0)}
        observed = self._statistics(ids[None])
        found = _p_values(observed, self._few)
        if min(found.values()) * (FEW + 1) < MIN_EXTREME:
            found = _p_values(observed, self._many)
        return {"support": 1.0, **found}

    @cached_property
    def _few(self) -> Floats:
        return self._simulated(FEW, stream=0)

    @cached_property
    def _many(self) -> Floats:
        parts = [self._simulated(CHUNK, stream=1 + number) for number in range(MANY // CHUNK)]
        return np.concatenate(parts, axis=1)

    def _simulated(self, num: int, *, stream: int) -> Floats:
        """Statistics of `num` simulated samples, [3, num]."""
        generator = np.random.default_rng([self._seed, stream])
        uniform = generator.random((num, self._num_draws)) * self._cumulative[-1]
        return self._statistics(np.searchsorted(self._cumulative, uniform, side="right"))

    def _statistics(self, ids: NDArray[np.int64]) -> Floats:
        """[3, samples] of ids [samples, draws]."""
        sharpness = self._logs[ids].sum(axis=1)
        buckets = self._buckets[ids]
        counts = np.stack([(buckets == number).sum(axis=1) for number in range(len(self._expected))], axis=1)
        frequencies = ((counts - self._expected) ** 2 / self._expected).sum(axis=1)
        ordered = np.sort(ids, axis=1)
        # runs of equal ids: a run of length r has r - 1 equal neighbours, and the k-th of them closes k pairs
        lengths = np.zeros(len(ids))
        repeats = np.zeros(len(ids))
        for place in range(1, ids.shape[1]):
            lengths = np.where(ordered[:, place] == ordered[:, place - 1], lengths + 1, 0)
            repeats += lengths
        return np.stack([sharpness, frequencies, repeats])


def _buckets(probs: Floats, num_draws: int) -> tuple[NDArray[np.int64], Floats]:
    """Bucket of every token, likely ones first, and the expected draws of each bucket; no bucket is nearly empty."""
    bucket_of = np.zeros(len(probs), dtype=np.int64)
    expected: list[float] = []
    held = 0.0
    for token in np.argsort(-probs, kind="stable"):
        bucket_of[token] = len(expected)
        held += float(probs[token]) * num_draws
        if held >= MIN_EXPECTED:
            expected.append(held)
            held = 0.0
    if not expected:
        return bucket_of, np.array([float(num_draws)])
    # what is left is no bucket of its own
    bucket_of[bucket_of == len(expected)] = len(expected) - 1
    expected[-1] += held
    return bucket_of, np.array(expected)


def _p_values(observed: Floats, simulated: Floats) -> dict[str, float]:
    """Two-sided for sharpness, upper tails for the others."""
    # sums of floats in another order differ in their last bits: equal samples must count as equal
    slack = 1e-9 * (1 + np.abs(observed))
    above = (1 + (simulated >= observed - slack).sum(axis=1)) / (1 + simulated.shape[1])
    below = (1 + (simulated <= observed + slack).sum(axis=1)) / (1 + simulated.shape[1])
    sharpness = min(1.0, 2 * min(float(above[0]), float(below[0])))
    return dict(zip(STATISTICS, (sharpness, float(above[1]), float(above[2])), strict=True))
