"""From two manifests to an effect with its interval."""

from __future__ import annotations

import math

from vibeserve.core.manifest import BaselineValue, Manifest, MetricResult
from vibeserve.errors import InfraError
from vibeserve.skills.effects import EffectRow


def claim(manifest: Manifest, *, against: str = "") -> tuple[MetricResult, BaselineValue]:
    """The certified headline and the interleaved baseline that it is told against: the named one, else the first
    competent one. InfraError where the run measured none."""
    headline = manifest.headline()
    rows = [row for row in headline.claims() if row.ratio is not None] if headline else []
    chosen = next((row for row in rows if row.name == against), None) if against else next(iter(rows), None)
    if headline is None or chosen is None:
        what = f"the baseline {against}" if against else "any baseline"
        raise InfraError(f"{manifest.target} {manifest.plan_id} measured no headline against {what}")
    return headline, chosen


def combined(first: tuple[float, float, float], second: tuple[float, float, float]) -> tuple[float, float, float]:
    """(ratio, low, high) of the quotient of two independent ratios with intervals.

    On logarithms each bound takes the distances of the two bounds that it depends on, added in squares (MOVER: Zou and
    Donner, Construction of confidence limits about effect measures, 2008, doi 10.1002/sim.3095), which keeps intervals
    that are not symmetric.
    """
    a, a_low, a_high = (math.log(value) for value in first)
    b, b_low, b_high = (math.log(value) for value in second)
    low = a - b - math.hypot(a - a_low, b_high - b)
    high = a - b + math.hypot(a_high - a, b - b_low)
    return first[0] / second[0], math.exp(low), math.exp(high)


def effect_row(with_skill: Manifest, without_skill: Manifest) -> EffectRow:
    """What the skill changes of the headline, above 1 where it helps. InfraError where the runs cannot be compared."""
    headline, row = claim(with_skill)
    other, other_row = claim(without_skill, against=row.name)
    if (headline.name, headline.load, with_skill.hardware) != (other.name, other.load, without_skill.hardware):
        raise InfraError("the two runs have another headline, or were measured on other hardware")
    effect, low, high = combined(interval_of(row), interval_of(other_row))
    return EffectRow(
        target=with_skill.target, metric=headline.name, load=headline.load, level=with_skill.level,
        hardware=str(with_skill.hardware.get("cpu_model", "")), against=row.name, with_ratio=interval_of(row)[0],
        without_ratio=interval_of(other_row)[0], effect=effect, ci_low=low, ci_high=high,
    )  # fmt: skip


def interval_of(row: BaselineValue) -> tuple[float, float, float]:
    """(ratio, low, high) of a claim."""
    assert row.ratio is not None and row.ci_low is not None and row.ci_high is not None
    return row.ratio, row.ci_low, row.ci_high
