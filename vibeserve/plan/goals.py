"""Declared goals against the ceilings: what is unreachable is refused with its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vibeserve.core.nouns import METRICS, Direction
from vibeserve.errors import SpecError
from vibeserve.plan.nouns import MEASURED, Ceiling, RatioBound
from vibeserve.spec import DeclaredValue, Goal, Precision, Spec

MEASURED_SLACK = 2.0
"""a measured bandwidth refuses a goal only beyond this factor: quiet hosts drift by up to two within an hour"""

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


def refuse_unreachable(spec: Spec, ceilings: Sequence[Ceiling], ratios: Sequence[RatioBound]) -> None:
    """SpecError for every absolute goal beyond its ceiling ("unreachable: floor N"), and for every relative one beyond
    its ceiling over a declared figure."""
    problems = [*_absolute(spec, ceilings), *_relative(ratios, ceilings)]
    if problems:
        hint = "weaken the goal, or declare other hardware"
        raise SpecError("a goal lies beyond its roofline", problems=problems, hint=hint)


def _absolute(spec: Spec, ceilings: Sequence[Ceiling]) -> Iterator[str]:
    for index, goal in enumerate(spec.goals):
        wanted = wanted_value(goal)
        load = goal.load or spec.workload.headline_load
        ceiling = ceiling_of(ceilings, metric=goal.metric, load=load)
        if wanted is None or ceiling is None:
            continue
        metric = METRICS[goal.metric]
        if metric.ratio(wanted, against=ceiling.value) > _slack(ceiling):
            edge = "floor" if metric.direction is Direction.MIN else "ceiling"
            yield (
                f"goals[{index}]: {goal.metric} {wanted:.4g} {metric.unit} is unreachable: "
                f"{edge} {ceiling.value:.4g} {metric.unit} ({ceiling.bound_by}, load {load})"
            )


def _relative(ratios: Sequence[RatioBound], ceilings: Sequence[Ceiling]) -> Iterator[str]:
    for item in ratios:
        ceiling = ceiling_of(ceilings, metric=item.metric, load=item.load)
        if item.max_ratio is None or ceiling is None or item.min_ratio <= item.max_ratio * _slack(ceiling):
            continue
        unit = METRICS[item.metric].unit
        edge = "floor" if METRICS[item.metric].direction is Direction.MIN else "ceiling"
        yield (
            f"goals[{item.goal}]: {item.metric} x{item.min_ratio:g} against {item.against} is unreachable: best "
            f"possible ratio {item.max_ratio:.3g} ({edge} {ceiling.value:.4g} {unit} by {ceiling.bound_by}, "
            f"{item.baseline} declared {item.declared:.4g} {unit}, load {item.load})"
        )


def _slack(ceiling: Ceiling) -> float:
    return MEASURED_SLACK if ceiling.bound_by == MEASURED else 1.0


def wanted_value(goal: Goal) -> float | None:
    """An absolute goal's value in the metric's own unit."""
    if goal.max_ms is not None:
        return goal.max_ms / 1000
    return goal.max_gib if goal.max_gib is not None else goal.min_per_s
