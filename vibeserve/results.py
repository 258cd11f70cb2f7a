"""From series to the rows that are quoted: every metric at every load beside every baseline, and the goals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from vibeserve.benchmark import paired_ratio, pooled_metrics
from vibeserve.core.manifest import BaselineValue, GoalResult, MetricResult
from vibeserve.core.nouns import Metric, RatioInterval, Role
from vibeserve.errors import RefusedError
from vibeserve.modalities import Bundle, metrics_of
from vibeserve.rivals import Rival, screened_by
from vibeserve.roles.evaluator import Series
from vibeserve.spec import BaselineClass, Goal, Spec

WINNER = "winner"
RESAMPLE_SEED = 0
"""of the bootstrap: an interval is a function of the windows"""


@dataclass(frozen=True, kw_only=True)
class Screened:
    """A baseline that was too slow to be interleaved: one window at the headline load."""

    rival: Rival
    value: float
    """of `rivals.screened_by`"""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """All that certification measured."""

    series: dict[str, dict[str, list[Series]]]
    """load -> entrant -> one series per start"""
    rivals: tuple[Rival, ...]
    screened: tuple[Screened, ...]
    skipped: tuple[BaselineValue, ...]
    startup_s: dict[str, float]


def metric_results(measured: Measured, *, spec: Spec, bundle: Bundle) -> tuple[MetricResult, ...]:
    """One row per metric and load for which the winner has a value. A baseline without one has a row without any."""
    pooled = {
        load: {name: _pooled(starts, bundle=bundle) for name, starts in entrants.items()}
        for load, entrants in measured.series.items()
    }
    metrics = metrics_of(bundle)
    is_screened = (screened_by(spec, metrics).name, spec.workload.headline_load)
    rows = []
    for load in measured.series:
        for metric in metrics.values():
            row = _row(
                measured, pooled[load], metric=metric, load=load, role=role_of(metric.name, load, spec=spec),
                is_screened=(metric.name, load) == is_screened,
            )  # fmt: skip
            if row is not None:
                rows.append(row)
    return tuple(rows)


def role_of(metric: str, load: str, *, spec: Spec) -> Role:
    """The first goal is the headline, the others are guards, the rest is diagnostic."""
    for position, goal in enumerate(spec.goals):
        if goal.metric == metric and (goal.load or spec.workload.headline_load) == load:
            return Role.HEADLINE if position == 0 else Role.GUARD
    return Role.DIAGNOSTIC


def goal_results(metrics: Sequence[MetricResult], *, spec: Spec) -> tuple[GoalResult, ...]:
    """Every declared goal. A relative one is met when the ratio reaches `min_ratio` and, where that is above 1, the
    interval lies above 1; against a class, its fastest measured member of the same-bytes table counts, and a measured
    member without a value leaves it open. What is open is not met."""
    return tuple(_goal(goal, metrics, spec=spec) for goal in spec.goals)


def _pooled(starts: Sequence[Series], *, bundle: Bundle) -> list[dict[str, float]]:
    """Metrics over all windows of a start: more requests for the percentiles than one window has."""
    result = []
    for row in starts:
        windows = [(window["start_s"], window["end_s"]) for window in row.windows]
        metrics = pooled_metrics(row.replies, windows=windows, bundle=bundle)
        result.append(metrics | {"peak_memory": max(window["peak_memory"] for window in row.windows)})
    return result


def _row(
    measured: Measured, pooled: dict[str, list[dict[str, float]]], *, metric: Metric, load: str, role: Role,
    is_screened: bool,
) -> MetricResult | None:  # fmt: skip
    """`is_screened`: the row in which baselines appear that have no other, because they were not interleaved."""
    value = _value(measured, pooled, metric=metric, name=WINNER)
    if value is None:
        return None
    baselines = [
        _baseline_row(measured, pooled, rival, metric=metric, load=load, ours=value) for rival in measured.rivals
    ]
    if is_screened:
        baselines += [_screened_row(item, metric=metric, ours=value) for item in measured.screened]
        baselines += measured.skipped
    return MetricResult(
        name=metric.name, unit=metric.unit, direction=metric.direction, role=role, load=load, candidate=value,
        baselines=tuple(baselines),
    )  # fmt: skip


def _value(measured: Measured, pooled: dict[str, list[dict[str, float]]], *, metric: Metric, name: str) -> float | None:
    """Median over the starts of the pooled value."""
    if metric.name == "startup":
        return measured.startup_s.get(name)
    values = [start[metric.name] for start in pooled[name] if metric.name in start]
    return median(values) if values and len(values) == len(pooled[name]) else None


def _baseline_row(
    measured: Measured,
    pooled: dict[str, list[dict[str, float]]],
    rival: Rival,
    *,
    metric: Metric,
    load: str,
    ours: float,
) -> BaselineValue:
    theirs = _value(measured, pooled, metric=metric, name=rival.name)
    interval = _interval(measured.series[load], pooled, rival.name, metric=metric)
    # a value of 0 (no request met the SLO) has no ratio
    ratio = interval.ratio if interval else metric.ratio(ours, against=theirs) if theirs and ours else None
    return _blank(
        rival, value=theirs, ratio=ratio, ci_low=interval.ci_low if interval else None,
        ci_high=interval.ci_high if interval else None, note=rival.note, state="measured",
    )  # fmt: skip


def _interval(
    series: dict[str, list[Series]], pooled: dict[str, list[dict[str, float]]], rival: str, *, metric: Metric
) -> RatioInterval | None:
    """Over all pairs, clustered by start; over starts where single windows hold too few requests; else none."""
    ours = [window for start in series[WINNER] for window in start.windows]
    theirs = [window for start in series[rival] for window in start.windows]
    groups = [number for number, start in enumerate(series[WINNER]) for _ in start.windows]
    try:
        return paired_ratio(ours, theirs, metric=metric, seed=RESAMPLE_SEED, groups=groups)
    except RefusedError:
        pass
    try:
        return paired_ratio(pooled[WINNER], pooled[rival], metric=metric, seed=RESAMPLE_SEED)
    except RefusedError:
        return None


def _screened_row(item: Screened, *, metric: Metric, ours: float) -> BaselineValue:
    value = item.value
    ratio = metric.ratio(ours, against=value) if value and ours else None
    note = f"one window only, too slow to be interleaved{'; ' + item.rival.note if item.rival.note else ''}"
    return _blank(item.rival, value=value, ratio=ratio, ci_low=None, ci_high=None, note=note, state="screened")


def _blank(
    rival: Rival,
    *,
    value: float | None,
    ratio: float | None,
    ci_low: float | None,
    ci_high: float | None,
    note: str,
    state: str,
) -> BaselineValue:
    return BaselineValue(
        name=rival.name, baseline_class=rival.baseline_class, version=rival.version, flags=rival.flags,
        precision=rival.precision, value=value, ratio=ratio, ci_low=ci_low, ci_high=ci_high, state=state, note=note,
        weight_bits=rival.weight_bits, kv_bits=rival.kv_bits,
    )  # fmt: skip


def _goal(goal: Goal, metrics: Sequence[MetricResult], *, spec: Spec) -> GoalResult:
    load = goal.load or spec.workload.headline_load
    row = next((metric for metric in metrics if metric.name == goal.metric and metric.load == load), None)
    if goal.min_ratio is not None:
        return _relative_goal(goal, row, load=load, min_ratio=goal.min_ratio)
    limit, unit, factor = _limit(goal)
    value = row.candidate * factor if row else None
    is_floor = goal.min_per_s is not None
    met = value is not None and (value >= limit if is_floor else value <= limit)
    return GoalResult(
        metric=goal.metric, load=load, against="", ratio=None, ci_low=None, met=met, value=value, limit=limit, unit=unit
    )


def _limit(goal: Goal) -> tuple[float, str, float]:
    """(limit, its unit, factor from the metric's own unit)"""
    if goal.max_ms is not None:
        return goal.max_ms, "ms", 1000.0
    if goal.max_gib is not None:
        return goal.max_gib, "GiB", 1.0
    assert goal.min_per_s is not None
    return goal.min_per_s, "1/s", 1.0


def _relative_goal(goal: Goal, row: MetricResult | None, *, load: str, min_ratio: float) -> GoalResult:
    rows = [item for item in (row.baselines if row else ()) if goal.against in (item.name, item.baseline_class)]
    if goal.against in (item.value for item in BaselineClass):
        rows = [item for item in rows if item.precision == "same_bytes"]
    rivals = [item for item in rows if item.ratio is not None]
    is_complete = all(item.ratio is not None for item in rows if item.state == "measured")
    hardest = min(rivals, key=lambda item: item.ratio or 0.0, default=None)
    if hardest is None or hardest.ratio is None:
        return GoalResult(metric=goal.metric, load=load, against=goal.against, ratio=None, ci_low=None, met=False)
    is_sure = min_ratio <= 1.0 or (hardest.ci_low is not None and hardest.ci_low > 1.0)
    return GoalResult(
        metric=goal.metric, load=load, against=hardest.name, ratio=hardest.ratio, ci_low=hardest.ci_low,
        met=hardest.ratio >= min_ratio and is_sure and is_complete,
    )  # fmt: skip
