"""Declared goals against the ceilings: what is unreachable is refused with its numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from vibeserve.core.nouns import METRICS, Direction
from vibeserve.errors import SpecError
from vibeserve.plan.nouns import MEASURED, UNBOUNDED_GB_S, Ceiling, RatioBound, Roof
from vibeserve.spec import DeclaredValue, Goal, Precision, Spec

MEASURED_SLACK = 2.0
"""a measured bandwidth refuses a goal only beyond this factor: quiet hosts drift by up to two within an hour"""

DISTURBED_SLACK = 20.0
"""of one that was measured while other work waited for cores: such readings were 2.6 GB/s where a quiet one is 22, and
the drift of a quiet host comes on top"""

BOUNDED_BY = {"goodput": "request_throughput"}
"""metric -> the one whose ceiling holds for it too; a p99 is no better than its p50 (`bounding_metric`)"""


def ceiling_of(ceilings: Sequence[Ceiling], *, metric: str, load: str) -> Ceiling | None:
    """The ceiling that holds for `metric` at `load`."""
    wanted = bounding_metric(metric)
    return next((item for item in ceilings if item.metric == wanted and item.load in ("", load)), None)


def bounding_metric(metric: str) -> str:
    """Metric whose ceiling holds for `metric`."""
    return BOUNDED_BY.get(metric, metric.replace("_p99", "_p50"))


def ratio_bounds(spec: Spec, ceilings: Sequence[Ceiling]) -> tuple[RatioBound, ...]:
    """Of every relative goal. A ratio against a class is one against its fastest member, so each declared figure of a
    member bounds it; the best declared figure bounds most."""
    found = []
    for index, goal in enumerate(spec.goals):
        if goal.min_ratio is None or goal.metric not in METRICS:
            continue
        load = goal.load or spec.workload.headline_load
        ceiling = ceiling_of(ceilings, metric=goal.metric, load=load)
        name, figure = _hardest(spec, goal, load=load)
        ratio = None
        if ceiling is not None and figure is not None:
            ratio = METRICS[goal.metric].ratio(ceiling.value, against=figure.value)
        found.append(
            RatioBound(
                goal=index, metric=goal.metric, load=load, against=goal.against, min_ratio=goal.min_ratio,
                ceiling=ceiling.value if ceiling else None, baseline=name,
                declared=figure.value if figure else None, source=figure.source if figure else "", max_ratio=ratio,
            )
        )  # fmt: skip
    return tuple(found)


def _hardest(spec: Spec, goal: Goal, *, load: str) -> tuple[str, DeclaredValue | None]:
    """The declared figure that is hardest to beat, and its baseline; ("", None) without any."""
    rows = [
        (name, item)
        for name, baseline in spec.baseline.items()
        if goal.against == name
        or (goal.against == baseline.baseline_class.value and baseline.precision is Precision.same_bytes)
        for item in baseline.declared
        if item.metric == goal.metric and (item.load or spec.workload.headline_load) == load
    ]
    metric = METRICS[goal.metric]
    return max(rows, key=lambda row: metric.ratio(row[1].value, against=1.0), default=("", None))


def slack_of(roof: Roof) -> float:
    """Beyond which factor the roof's measured bandwidth refuses a goal; infinite where nobody measured it."""
    if roof.bandwidth_gb_s >= UNBOUNDED_GB_S:
        return math.inf
    return DISTURBED_SLACK if roof.is_disturbed else MEASURED_SLACK


def refuse_unreachable(
    spec: Spec, ceilings: Sequence[Ceiling], ratios: Sequence[RatioBound], *, measured_slack: float = MEASURED_SLACK
) -> None:
    """SpecError for every absolute goal beyond its ceiling ("unreachable: floor N"), and for every relative one beyond
    its ceiling over a declared figure; beyond `measured_slack` times what a measured bandwidth bounds."""
    problems = [
        *_absolute(spec, ceilings, measured_slack=measured_slack),
        *_relative(ratios, ceilings, measured_slack=measured_slack),
    ]
    if problems:
        hint = "weaken the goal, or declare other hardware"
        raise SpecError("a goal lies beyond its roofline", problems=problems, hint=hint)


def _absolute(spec: Spec, ceilings: Sequence[Ceiling], *, measured_slack: float) -> Iterator[str]:
    for index, goal in enumerate(spec.goals):
        wanted = wanted_value(goal)
        load = goal.load or spec.workload.headline_load
        ceiling = ceiling_of(ceilings, metric=goal.metric, load=load)
        if wanted is None or ceiling is None:
            continue
        metric = METRICS[goal.metric]
        if metric.ratio(wanted, against=ceiling.value) > _slack(ceiling, measured=measured_slack):
            edge = "floor" if metric.direction is Direction.MIN else "ceiling"
            # in the unit that the goal is declared in
            scale, unit = (1000, "ms") if goal.max_ms is not None else (1, metric.unit)
            yield (
                f"goals[{index}]: {goal.metric} {wanted * scale:.4g} {unit} is unreachable: "
                f"{edge} {ceiling.value * scale:.4g} {unit} ({ceiling.bound_by}, load {load})"
            )


def _relative(ratios: Sequence[RatioBound], ceilings: Sequence[Ceiling], *, measured_slack: float) -> Iterator[str]:
    for item in ratios:
        ceiling = ceiling_of(ceilings, metric=item.metric, load=item.load)
        if item.max_ratio is None or ceiling is None:
            continue
        if item.min_ratio <= item.max_ratio * _slack(ceiling, measured=measured_slack):
            continue
        unit = METRICS[item.metric].unit
        edge = "floor" if METRICS[item.metric].direction is Direction.MIN else "ceiling"
        yield (
            f"goals[{item.goal}]: {item.metric} x{item.min_ratio:g} against {item.against} is unreachable: best "
            f"possible ratio {item.max_ratio:.3g} ({edge} {ceiling.value:.4g} {unit} by {ceiling.bound_by}, "
            f"{item.baseline} declared {item.declared:.4g} {unit}, load {item.load})"
        )


def _slack(ceiling: Ceiling, *, measured: float) -> float:
    return measured if ceiling.bound_by == MEASURED else 1.0


def wanted_value(goal: Goal) -> float | None:
    """An absolute goal's value in the metric's own unit."""
    if goal.max_ms is not None:
        return goal.max_ms / 1000
    return goal.max_gib if goal.max_gib is not None else goal.min_per_s
