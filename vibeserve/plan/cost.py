"""What a run costs, and after how many requests it has paid back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vibeserve.core.nouns import METRICS, Metric
from vibeserve.plan.goals import ceiling_of, wanted_value
from vibeserve.plan.nouns import Ceiling, Cost, RatioBound
from vibeserve.spec import Spec

ASSUMED_SHARE = 0.5
"""of the ceiling: what the result is taken to reach where no goal and no declared figure says more. An assumption for
the break-even alone, printed beside it. On one CPU core a compiled vLLM was seen at 0.35 of its ceiling at batch 1, a
bare loop of the matrix products at 0.87"""

SECONDS_PER_HOUR = 3600


def usd_per_request(*, usd_per_hour: float, requests_per_s: float) -> float:
    """Price of one request on devices that cost `usd_per_hour` together and are always busy."""
    return usd_per_hour / SECONDS_PER_HOUR / requests_per_s


def break_even_requests(run_usd: float, *, usd_per_request_before: float, usd_per_request_after: float) -> float | None:
    """Requests after which a run of `run_usd` has paid back; None where a request does not get cheaper."""
    saving = usd_per_request_before - usd_per_request_after
    return run_usd / saving if saving > 0 else None


def requests_per_s(spec: Spec, *, metric: str, load: str, value: float) -> float | None:
    """Request rate that a headline's value means, with replies of the mean length; None where it means none."""
    if metric == "request_throughput":
        return value
    declared = spec.workload.loads[load]
    if metric == "output_throughput":
        tokens = declared.output_tokens or (spec.workload.output_tokens_min + spec.workload.output_tokens_max) / 2
        return value / tokens
    if metric.startswith("e2el_") and declared.concurrency:
        return declared.concurrency / value
    return None


def run_cost(spec: Spec, *, minutes: float, ceilings: Sequence[Ceiling], ratios: Sequence[RatioBound]) -> Cost:
    """Device-hours and price of a run of so many minutes, and its break-even at the declared price."""
    device_hours = spec.hardware.count * minutes / 60
    usd = device_hours * spec.hardware.usd_per_hour if spec.hardware.usd_per_hour else None
    number, text = None, "not priced: hardware.usd_per_hour is 0"
    if usd is not None and spec.goals:
        number, text = _break_even(spec, usd + spec.budget.usd, ceilings=ceilings, ratios=ratios)
    return Cost(
        device_hours=device_hours, usd=usd, agents_usd=spec.budget.usd, break_even_requests=number, break_even=text
    )


@dataclass(frozen=True, kw_only=True)
class _Assumption:
    """The headline before and after the run, and how the two come about."""

    before: float
    after: float
    text: str


def _break_even(
    spec: Spec, run_usd: float, *, ceilings: Sequence[Ceiling], ratios: Sequence[RatioBound]
) -> tuple[float | None, str]:
    """(requests, the assumption) or (None, why not)."""
    goal = spec.goals[0]
    load = goal.load or spec.workload.headline_load
    found = next(_assumptions(spec, ceilings=ceilings, ratios=ratios), None)
    if found is None:
        return None, f"unknown: {goal.metric} at {load} has no ratio with a ceiling or a declared figure behind it"
    rates = [requests_per_s(spec, metric=goal.metric, load=load, value=value) for value in (found.before, found.after)]
    if rates[0] is None or rates[1] is None:
        return None, f"unknown: {goal.metric} says nothing about the price of a request"
    hourly = spec.hardware.usd_per_hour * spec.hardware.count
    before, after = (usd_per_request(usd_per_hour=hourly, requests_per_s=rate) for rate in (rates[0], rates[1]))
    number = break_even_requests(run_usd, usd_per_request_before=before, usd_per_request_after=after)
    if number is None:
        return None, f"never: a request gets no cheaper (assumed: {found.text})"
    return number, f"assumed: {found.text}, devices always busy"


def _assumptions(spec: Spec, *, ceilings: Sequence[Ceiling], ratios: Sequence[RatioBound]) -> Iterator[_Assumption]:
    """What the headline's goal and the declared figures say, the best founded first."""
    goal = spec.goals[0]
    if goal.metric not in METRICS:
        return
    metric, load = METRICS[goal.metric], goal.load or spec.workload.headline_load
    what = f"{goal.metric} at {load}"
    ceiling = ceiling_of(ceilings, metric=goal.metric, load=load)
    bound = next((item for item in ratios if item.goal == 0), None)
    if bound is not None and bound.declared is not None:
        after = _improved(bound.declared, by=bound.min_ratio, metric=metric)
        text = f"{what} {bound.min_ratio:g} times as good as the declared {bound.declared:.4g} of {bound.baseline}"
        yield _Assumption(before=bound.declared, after=after, text=text)
    if bound is not None and ceiling is not None:
        after = _improved(ceiling.value, by=ASSUMED_SHARE, metric=metric)
        before = _improved(after, by=1 / bound.min_ratio, metric=metric)
        text = (
            f"{what} reaches {ASSUMED_SHARE:.0%} of its ceiling, {after:.4g} {metric.unit}, "
            f"{bound.min_ratio:g} times as good as {bound.against}"
        )
        yield _Assumption(before=before, after=after, text=text)
    wanted = wanted_value(goal)
    declared = _best_declared(spec, metric=metric, load=load)
    if wanted is not None and declared is not None:
        name, before = declared
        text = f"{what} as the goal says, {wanted:.4g} {metric.unit}, instead of the declared {before:.4g} of {name}"
        yield _Assumption(before=before, after=wanted, text=text)


def _best_declared(spec: Spec, *, metric: Metric, load: str) -> tuple[str, float] | None:
    """Name and figure of the baseline whose declared figure is best."""
    rows = [
        (name, item.value)
        for name, baseline in spec.baseline.items()
        for item in baseline.declared
        if item.metric == metric.name and (item.load or spec.workload.headline_load) == load
    ]
    return max(rows, key=lambda row: metric.ratio(row[1], against=1.0), default=None)


def _improved(value: float, *, by: float, metric: Metric) -> float:
    """A value that is `by` times as good."""
    return value * metric.ratio(by, against=1.0)
