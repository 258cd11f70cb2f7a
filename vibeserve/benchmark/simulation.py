"""How often the decision errs, by simulation under noise that was measured: false accepts, and gains that it finds.

A simulated candidate is a pair of servers of the very same runtime, as measured, whose log-ratios are drawn again with
replacement and moved by a true effect. Every draw stays within one pair of starts: what differs between two starts of
one runtime (memory layout, core clocks) is the same in all windows of a comparison, and more pairs do not average it
away. The sign is random, because either server could have been the candidate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vibeserve.benchmark.decision import AGAIN_FACTOR, decide, is_undecided
from vibeserve.benchmark.statistics import MIN_PAIRS, noise_floor
from vibeserve.core.nouns import METRICS, Decision
from vibeserve.errors import SpecError

if TYPE_CHECKING:
    import numpy as np

METRIC = METRICS["output_throughput"]
NUM_RESAMPLES = 400
"""of each decision's bootstrap; the product's own number takes five times longer and gives the same rates"""
_SEED_RANGE = 2**31


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Document: A/A log-ratios of one runtime against itself on one machine."""

    machine: str
    """what it was measured on"""
    target: str
    load: str
    window_s: float
    starts: tuple[tuple[float, ...], ...]
    """one row per pair of fresh starts: log(second / first) of every pair of windows"""
    schema_version: int = 1

    def check(self) -> Noise:
        """Itself. SpecError when a simulation could not draw from it."""
        rows = [row for row in self.starts if len(row) >= MIN_PAIRS]
        values = [value for row in self.starts for value in row]
        if not rows or len(rows) != len(self.starts) or not all(math.isfinite(value) for value in values):
            raise SpecError(
                f"noise of {self.target}: every start needs {MIN_PAIRS} or more finite log-ratios",
                hint="invoke bench-decision --measure",
            )
        return self


@dataclass(frozen=True, kw_only=True)
class DecisionRates:
    """Document: what `invoke bench-decision` found. Rates are shares of the simulated candidates."""

    false_accept_rate: float
    """of candidates without any true effect"""
    detection_rate: float
    """of candidates with `effect`"""
    candidates: int
    """simulated for each rate"""
    effect: float
    """true gain, as a share"""
    measured_again_rate: float
    """of candidates without any true effect: undecided at first, so measured once more, twice as long"""
    num_pairs: int
    """of the first measurement"""
    noise_sd: float
    """standard deviation of one pair's log-ratio, between and within starts"""
    median_floor: float
    """noise floor of the median simulated comparison, in log-ratio"""
    machine: str
    target: str
    num_starts: int
    schema_version: int = 1

    def lines(self) -> list[str]:
        return [
            f"noise        {self.noise_sd:.1%} per pair over {self.num_starts} pairs of starts; {self.target}, "
            f"{self.machine}",
            f"floor        {self.median_floor:.1%} at {self.num_pairs} pairs (median)",
            f"no effect    {self.false_accept_rate:.1%} of {self.candidates} candidates accepted",
            f"+{self.effect:.0%} true   {self.detection_rate:.1%} of {self.candidates} candidates accepted",
            f"again        {self.measured_again_rate:.1%} of those without effect are undecided and measured once more",
        ]


def simulate(
    noise: Noise, *, num_pairs: int, effect: float, num_candidates: int, min_effect: float, seed: int
) -> DecisionRates:
    """Both rates at `num_pairs` pairs a comparison, by the product's own `decide`, `is_undecided` and `noise_floor`.

    What is undecided is measured once more from other starts over twice as many pairs, as in a round.

    Deterministic by seed. SpecError for noise that cannot be drawn from.
    """
    import numpy as np

    draw = np.random.default_rng(seed)
    rows = [np.asarray(row, dtype=np.float64) for row in noise.check().starts]
    accepted = {0.0: 0, effect: 0}
    num_again = 0
    floors: list[float] = []

    def decided(gain: float, pairs: int) -> Decision:
        floor = noise_floor(
            list(_drawn(rows, pairs, draw)), seed=int(draw.integers(_SEED_RANGE)), num_resamples=NUM_RESAMPLES
        )
        floors.append(floor)
        return _decision(_drawn(rows, pairs, draw) + math.log1p(gain), floor=floor, min_effect=min_effect, draw=draw)

    for _ in range(num_candidates):
        for gain in (0.0, effect):
            decision = decided(gain, num_pairs)
            if is_undecided(decision, min_effect=min_effect):
                num_again += gain == 0.0
                decision = decided(gain, AGAIN_FACTOR * num_pairs)
            accepted[gain] += decision.accepted
    return DecisionRates(
        false_accept_rate=accepted[0.0] / num_candidates, detection_rate=accepted[effect] / num_candidates,
        measured_again_rate=num_again / num_candidates,
        candidates=num_candidates, effect=effect, num_pairs=num_pairs, noise_sd=float(np.std(np.concatenate(rows))),
        median_floor=float(np.median(floors)), machine=noise.machine, target=noise.target, num_starts=len(rows),
    )  # fmt: skip


def _drawn(rows: list[np.ndarray], num_pairs: int, draw: np.random.Generator) -> np.ndarray:
    """[num_pairs] log-ratios of one comparison of a runtime with itself."""
    row = rows[int(draw.integers(len(rows)))]
    sign = 1.0 if draw.integers(2) else -1.0
    drawn: np.ndarray = sign * draw.choice(row, size=num_pairs)
    return drawn


def _decision(logs: np.ndarray, *, floor: float, min_effect: float, draw: np.random.Generator) -> Decision:
    candidate = [{METRIC.name: math.exp(float(value))} for value in logs]
    incumbent = [{METRIC.name: 1.0} for _ in logs]
    return decide(
        candidate, incumbent, metric=METRIC, noise_floor=floor, min_effect=min_effect,
        seed=int(draw.integers(_SEED_RANGE)), complexity=(1, 0), num_resamples=NUM_RESAMPLES,
    )  # fmt: skip
