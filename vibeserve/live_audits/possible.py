"""Impossible numbers: nothing may be faster than the hardware can read or compute (class 23).

The ceilings are the plan's (`vibeserve.plan.ceilings`): of a declared bandwidth or arithmetic rate they hold to 1e-3,
as reference-kernels#159 has it. A measured bandwidth is itself a number with noise, up to twofold within an hour on
shared machines, so it is measured again where a result lies beyond, the best reading counts, and a margin is left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vibeserve.contract import Direction
from vibeserve.core.manifest import MetricResult
from vibeserve.live_audits.nouns import Audited, audited, not_applicable
from vibeserve.plan import Plan
from vibeserve.plan.nouns import COMPUTE, DECLARED, MEASURED, UNBOUNDED_GB_S, Ceiling

NAME = "possible"
REASON = "impossible"
SLACK = {DECLARED: 1e-3, COMPUTE: 1e-3, MEASURED: 0.25}
"""by what bounds; other bounds, such as an offered load, are no physics"""
NUM_READINGS = 3


@dataclass(frozen=True, kw_only=True)
class Excess:
    """How a result compares with its ceiling: `share` is value over ceiling, of a latency floor over value."""

    ceiling: Ceiling
    value: float
    share: float

    def is_beyond(self, *, gain: float) -> bool:
        """Beyond the slack, with the measured bandwidth `gain` times what the ceiling was computed with."""
        allowed = gain if self.ceiling.bound_by == MEASURED else 1.0
        return self.share > allowed * (1 + SLACK[self.ceiling.bound_by])


def judge_possible(
    plan: Plan, metrics: Sequence[MetricResult], *, measure_gb_s: Callable[[], float] | None = None
) -> Audited:
    """Refuses `impossible`. `measure_gb_s` reads the bandwidth again; without it the plan's reading counts."""
    found = excesses(plan, metrics)
    if not found:
        return not_applicable(NAME, "impossible-numbers audit: no roofline bounds what was measured (docs/hardware.md)")
    gain = 1.0
    if any(item.ceiling.bound_by == MEASURED and item.is_beyond(gain=1.0) for item in found) and measure_gb_s:
        gain = max(1.0, *(measure_gb_s() / plan.roof.bandwidth_gb_s for _ in range(NUM_READINGS)))
    beyond = [item for item in found if item.is_beyond(gain=gain)]
    nearest = max(found, key=lambda item: item.share / (1 + SLACK[item.ceiling.bound_by]))
    figures = {f"{item.ceiling.metric}_{item.ceiling.load}_share": item.share for item in found}
    text = f"{_told(nearest)}: the nearest of {len(found)} ceilings"
    problem = "; ".join(f"{_told(item)}: beyond what the hardware can do" for item in beyond)
    return audited(NAME, text=text, figures=figures, refused={REASON: problem} if problem else {})


def excesses(plan: Plan, metrics: Sequence[MetricResult]) -> list[Excess]:
    """Every measured metric that has a physical ceiling. Pure. A bandwidth that nobody read (`verify`) is none."""
    is_read = plan.roof.bandwidth_gb_s < UNBOUNDED_GB_S
    bounds = [bound for bound in SLACK if is_read or bound != MEASURED]
    ceilings = {(ceiling.metric, ceiling.load): ceiling for ceiling in plan.ceilings if ceiling.bound_by in bounds}
    found = []
    for metric in metrics:
        ceiling = ceilings.get((metric.name, metric.load))
        if ceiling is None or not metric.candidate > 0 or not ceiling.value > 0:
            continue
        share = metric.candidate / ceiling.value
        found.append(
            Excess(
                ceiling=ceiling, value=metric.candidate,
                share=share if metric.direction is Direction.MAX else 1 / share,
            )
        )  # fmt: skip
    return found


def _told(item: Excess) -> str:
    ceiling = item.ceiling
    bound = f"{ceiling.value:.4g} {ceiling.unit} by {ceiling.bound_by}"
    return f"{ceiling.metric} at {ceiling.load} is {item.value:.4g}, {item.share:.0%} of the bound ({bound})"
