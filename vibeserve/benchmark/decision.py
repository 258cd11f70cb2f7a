"""The decision on a candidate: pure, lexicographic, fail closed.

Validity, then guards, then the headline, then simplicity. On the headline a candidate is accepted only when the lower
end of the interval is above 1 *and* the median gain is above max(min_effect, noise floor).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from vibeserve.benchmark.statistics import NUM_RESAMPLES, paired_ratio
from vibeserve.core.nouns import Decision, Metric, RatioInterval
from vibeserve.errors import RefusedError

AGAIN_FACTOR = 2
"""pairs of a second measurement, in those of the first"""

Windows = Sequence[Mapping[str, float]]


@dataclass(frozen=True, kw_only=True)
class Guard:
    """A bound on the median of a metric over the windows, in the metric's own unit."""

    metric: Metric
    max_value: float | None = None
    min_value: float | None = None

    def excess(self, value: float) -> float:
        """How far beyond the bound, as a share of it; 0 when it holds."""
        over = value / self.max_value - 1 if self.max_value is not None else 0.0
        under = 1 - value / self.min_value if self.min_value is not None else 0.0
        return max(over, under, 0.0)

    def describe(self, value: float) -> str:
        bounds = [f"max {self.max_value:g}"] if self.max_value is not None else []
        bounds += [f"min {self.min_value:g}"] if self.min_value is not None else []
        return f"{self.metric.name} {value:.4g} {self.metric.unit} ({', '.join(bounds)})"


def decide(
    candidate: Windows,
    incumbent: Windows,
    *,
    metric: Metric,
    noise_floor: float,
    min_effect: float,
    seed: int,
    guards: Sequence[Guard] = (),
    complexity: tuple[int, int] = (0, 0),
    groups: Sequence[Hashable] | None = None,
    num_resamples: int = NUM_RESAMPLES,
) -> Decision:
    """Judge the windows of a candidate against those of the incumbent that were interleaved with them.

    `metric` is the headline; `noise_floor` is in log-ratio; `complexity` is (candidate, incumbent), less is simpler,
    and only matters for a tie: a simpler candidate whose lower end stays within the tie band is taken. A guard that the
    incumbent breaks as well must not be broken further. A missing or non-finite number anywhere refuses. Never raises
    for what was measured; `reason` starts with what decided: `invalid:`, `guard:`, `headline:`, `tie:`.
    """
    if not (math.isfinite(noise_floor) and noise_floor >= 0):
        return _refused("invalid: no noise floor, no comparison", None, math.nan)
    try:
        interval = paired_ratio(
            candidate, incumbent, metric=metric, seed=seed, num_resamples=num_resamples, groups=groups
        )
        broken = _broken_guard(candidate, incumbent, guards)
    except RefusedError as error:
        return _refused(f"invalid: {error}", None, noise_floor)
    if broken:
        return _refused(f"guard: {broken}", interval, noise_floor)
    return _on_headline(interval, metric=metric, noise_floor=noise_floor, min_effect=min_effect, complexity=complexity)


def is_undecided(decision: Decision, *, min_effect: float) -> bool:
    """A gain that would be accepted, were its interval not too wide: the machine was too noisy for so few pairs.

    Such a candidate is worth one more measurement, longer and from fresh starts, that decides alone
    (`docs/measuring.md` has what that does to the rates of error).
    """
    headline = decision.headline
    if decision.accepted or headline is None or not decision.reason.startswith("headline:"):
        return False
    return math.log(headline.ratio) > max(math.log1p(min_effect), decision.noise_floor) and headline.ci_low <= 1.0


def _on_headline(
    interval: RatioInterval, *, metric: Metric, noise_floor: float, min_effect: float, complexity: tuple[int, int]
) -> Decision:
    band = max(math.log1p(min_effect), noise_floor)
    gain, low = math.log(interval.ratio), math.log(interval.ci_low)
    facts = (
        f"{metric.name} x{interval.ratio:.3f} [{interval.ci_low:.3f}, {interval.ci_high:.3f}] over "
        f"{interval.num_pairs} pairs, needed x{math.exp(band):.3f}"
    )
    if low > 0 and gain > band:
        return Decision(accepted=True, reason=f"headline: {facts}", headline=interval, noise_floor=noise_floor)
    if complexity[0] < complexity[1] and low > -band:
        return Decision(accepted=True, reason=f"tie: simpler, {facts}", headline=interval, noise_floor=noise_floor)
    kind = "headline" if abs(gain) > band else "tie"
    return _refused(f"{kind}: {facts}", interval, noise_floor)


def _broken_guard(candidate: Windows, incumbent: Windows, guards: Sequence[Guard]) -> str:
    """What the candidate breaks and the incumbent does not, or breaks less; empty when every guard holds."""
    for guard in guards:
        ours = _median(candidate, guard.metric, side="candidate")
        excess = guard.excess(ours)
        if excess == 0:
            continue
        theirs = _median(incumbent, guard.metric, side="incumbent")
        if excess > guard.excess(theirs):
            return f"{guard.describe(ours)}, incumbent {theirs:.4g}"
    return ""


def _median(windows: Windows, metric: Metric, *, side: str) -> float:
    values = [window.get(metric.name, math.nan) for window in windows]
    if not values or not all(math.isfinite(value) and not isinstance(value, bool) for value in values):
        raise RefusedError(f"{side} has no usable {metric.name} in some window; a guard cannot be read from nothing")
    return median(values)


def _refused(reason: str, interval: RatioInterval | None, noise_floor: float) -> Decision:
    return Decision(accepted=False, reason=reason, headline=interval, noise_floor=noise_floor)
