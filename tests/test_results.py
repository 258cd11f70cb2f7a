"""Rows and goals from series of windows: directions, absent values, tables, and what meets a goal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from load_samples import PIECES, reply, text_bundle
from reversal import bundle_of

from vibeserve.contract import Record, Request
from vibeserve.core.manifest import BaselineValue, GoalResult, MetricResult
from vibeserve.core.nouns import METRICS, Role
from vibeserve.results import WINNER, Measured, Screened, goal_results, metric_results, role_of
from vibeserve.rivals import Rival, screened_by
from vibeserve.roles.evaluator import Series
from vibeserve.service import Launch
from vibeserve.spec import Goal, Load, Spec, Workload

WINDOWS = ((0.0, 1.0), (1.0, 2.0), (2.0, 3.0))


def series(name: str, *, tokens_per_s: int, peak_gib: float = 1.0) -> Series:
    """Three windows of one second, one request a window that streams `tokens_per_s` words in it."""
    replies = tuple(
        reply([(start_s + (n + 1) / (tokens_per_s + 1), PIECES[n % len(PIECES)]) for n in range(tokens_per_s)],
              scheduled_s=start_s)
        for start_s, _ in WINDOWS
    )  # fmt: skip
    windows = tuple(
        {"output_throughput": float(tokens_per_s), "peak_memory": peak_gib, "start_s": start_s, "end_s": end_s}
        for start_s, end_s in WINDOWS
    )
    return Series(name=name, windows=windows, replies=replies)


def rival(name: str, **changes: Any) -> Rival:
    values: dict[str, Any] = {
        "name": name, "baseline_class": "competent", "precision": "same_bytes", "version": "1.0", "flags": ("--x",),
        "is_required": True, "dialect": "vllm", "model": "",
        "launch": Launch(name=name, argv=("true",), workdir=Path("/"), model_dir=None),
    }  # fmt: skip
    return Rival(**(values | changes))


def spec_with(*goals: Goal) -> Spec:
    loads = {"c4": Load(concurrency=4), "c1": Load(concurrency=1)}
    return Spec(workload=Workload(loads=loads, headline_load="c4"), goals=list(goals))


HEADLINE = Goal(metric="output_throughput", min_ratio=1.5, against="competent")


def measured(rows: Sequence[Series], rivals: Sequence[Rival], **changes: Any) -> Measured:
    values: dict[str, Any] = {
        "series": {"c4": {row.name: [row] for row in rows}}, "rivals": tuple(rivals), "screened": (), "skipped": (),
        "startup_s": {row.name: 2.0 for row in rows},
    }  # fmt: skip
    return Measured(**(values | changes))


def rows_of(found: Measured, spec: Spec | None = None) -> dict[str, MetricResult]:
    metrics = metric_results(found, spec=spec or spec_with(HEADLINE), bundle=text_bundle())
    return {metric.name: metric for metric in metrics}


def test_a_ratio_above_one_is_better_in_either_direction() -> None:
    found = measured(
        [series(WINNER, tokens_per_s=8, peak_gib=1.0), series("a", tokens_per_s=4, peak_gib=3.0)], [rival("a")]
    )
    rows = rows_of(found)
    throughput, memory = rows["output_throughput"], rows["peak_memory"]
    assert (throughput.candidate, throughput.baselines[0].value) == (8.0, 4.0)
    assert throughput.baselines[0].ratio == pytest.approx(2.0)
    assert throughput.baselines[0].ci_low == pytest.approx(2.0)
    assert (memory.candidate, memory.baselines[0].value) == (1.0, 3.0)
    assert memory.baselines[0].ratio == pytest.approx(3.0)
    assert throughput.baselines[0].flags == ("--x",)


def test_startup_is_a_row_without_an_interval() -> None:
    found = measured(
        [series(WINNER, tokens_per_s=8), series("a", tokens_per_s=4)], [rival("a")], startup_s={WINNER: 2.0, "a": 5.0}
    )
    row = rows_of(found)["startup"]
    assert (row.candidate, row.baselines[0].value, row.baselines[0].ratio) == (2.0, 5.0, 2.5)
    assert row.baselines[0].ci_low is None


def test_a_metric_that_the_winner_lacks_has_no_row() -> None:
    """Three requests are too few for a percentile."""
    found = measured([series(WINNER, tokens_per_s=8), series("a", tokens_per_s=4)], [rival("a")])
    assert "ttft_p50" not in rows_of(found)


def test_a_baseline_of_zero_has_a_value_and_no_ratio() -> None:
    nothing = replace(series("a", tokens_per_s=4), replies=())
    nothing = replace(nothing, windows=tuple(window | {"output_throughput": 0.0} for window in nothing.windows))
    row = rows_of(measured([series(WINNER, tokens_per_s=8), nothing], [rival("a")]))["output_throughput"]
    assert (row.baselines[0].value, row.baselines[0].ratio, row.baselines[0].ci_low) == (0.0, None, None)


def test_a_winner_of_zero_has_no_ratio_either() -> None:
    nothing = replace(series(WINNER, tokens_per_s=4), replies=())
    nothing = replace(nothing, windows=tuple(window | {"output_throughput": 0.0} for window in nothing.windows))
    row = rows_of(measured([nothing, series("a", tokens_per_s=4)], [rival("a")]))["output_throughput"]
    assert (row.candidate, row.baselines[0].ratio) == (0.0, None)


def test_pairs_of_several_starts_are_clustered_and_medians_are_over_starts() -> None:
    starts = {
        WINNER: [series(WINNER, tokens_per_s=8), series(WINNER, tokens_per_s=12), series(WINNER, tokens_per_s=9)],
        "a": [series("a", tokens_per_s=4)] * 3,
    }
    row = rows_of(measured([], [rival("a")], series={"c4": starts}))["output_throughput"]
    assert row.candidate == 9.0
    assert row.baselines[0].ratio == pytest.approx(9 / 4)
    assert row.baselines[0].ci_low == pytest.approx(8 / 4)
    assert row.baselines[0].ci_high == pytest.approx(12 / 4)


def test_a_screened_baseline_has_one_row_at_the_headline_load_only() -> None:
    slow = Screened(rival=rival("slow", note="bf16"), value=2.0)
    found = measured([series(WINNER, tokens_per_s=8), series("a", tokens_per_s=4)], [rival("a")], screened=(slow,))
    found = replace(found, series={"c4": found.series["c4"], "c1": found.series["c4"]})
    metrics = metric_results(found, spec=spec_with(HEADLINE), bundle=text_bundle())
    rows = {(metric.name, metric.load): metric.baselines[-1] for metric in metrics}
    there = rows["output_throughput", "c4"]
    assert (there.state, there.value, there.ratio, there.ci_low) == ("screened", 2.0, 4.0, None)
    assert there.note == "one window only, too slow to be interleaved; bf16"
    assert (rows["output_throughput", "c1"].name, rows["peak_memory", "c4"].name) == ("a", "a")


def test_a_skipped_baseline_is_a_row_with_its_reason() -> None:
    absent = BaselineValue(name="vllm", baseline_class="competent", version="", state="skipped", note="not installed")
    found = measured([series(WINNER, tokens_per_s=8)], [], skipped=(absent,))
    assert rows_of(found)["output_throughput"].baselines == (absent,)


def test_the_first_goal_is_the_headline_and_the_others_are_guards() -> None:
    spec = spec_with(HEADLINE, Goal(metric="peak_memory", max_gib=2.0), Goal(metric="ttft_p50", load="c1", max_ms=9.0))
    assert role_of("output_throughput", "c4", spec=spec) is Role.HEADLINE
    assert role_of("output_throughput", "c1", spec=spec) is Role.DIAGNOSTIC
    assert role_of("peak_memory", "c4", spec=spec) is Role.GUARD
    assert role_of("ttft_p50", "c1", spec=spec) is Role.GUARD
    assert role_of("ttft_p50", "c4", spec=spec) is Role.DIAGNOSTIC


# -- a workload without tokens


def reversals(name: str, *, requests_per_s: int) -> Series:
    """Three windows of one second, in which so many requests ended, of four numbers each."""
    records = tuple(
        Record(
            request=Request(request_id=f"{name}-{start_s}-{n}"), scheduled_s=start_s, sent_s=start_s,
            end_s=start_s + (n + 1) / (requests_per_s + 1),
            marks=tuple((start_s + (n + 1) / (requests_per_s + 2), 1) for _ in range(4)),
        )
        for start_s, _ in WINDOWS for n in range(requests_per_s)
    )  # fmt: skip
    windows = tuple(
        {"numbers_per_s": 4.0 * requests_per_s, "request_throughput": float(requests_per_s), "peak_memory": 1.0,
         "start_s": start_s, "end_s": end_s}
        for start_s, end_s in WINDOWS
    )  # fmt: skip
    return Series(name=name, windows=windows, replies=records)


def test_a_workload_without_tokens_has_rows_of_its_own_metrics(tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path)
    slow = Screened(rival=rival("slow"), value=2.0)
    found = measured(
        [reversals(WINNER, requests_per_s=8), reversals("a", requests_per_s=4)], [rival("a")], screened=(slow,)
    )
    spec = spec_with(Goal(metric="numbers_per_s", min_ratio=1.5, against="competent"))
    rows = {metric.name: metric for metric in metric_results(found, spec=spec, bundle=bundle)}
    assert list(rows) == [
        "numbers_per_s", "first_p50", "request_throughput", "goodput", "e2el_p50", "peak_memory", "startup",
    ]  # fmt: skip
    headline = rows["numbers_per_s"]
    assert (headline.unit, headline.role, headline.candidate) == ("numbers/s", Role.HEADLINE, 32.0)
    assert [(row.name, row.state, row.ratio) for row in headline.baselines] == [
        ("a", "measured", pytest.approx(2.0)), ("slow", "screened", 16.0),
    ]  # fmt: skip
    assert [row.name for row in rows["request_throughput"].baselines] == ["a"]
    (goal,) = goal_results(tuple(rows.values()), spec=spec)
    assert (goal.metric, goal.ratio, goal.met) == ("numbers_per_s", pytest.approx(2.0), True)


@pytest.mark.parametrize(
    ("headline", "screening"),
    [
        ("output_throughput", "output_throughput"),
        ("goodput", "goodput"),
        ("ttft_p50", "request_throughput"),
        ("peak_memory", "request_throughput"),
    ],
)
def test_slow_baselines_are_told_by_the_headline_where_it_is_a_rate(headline: str, screening: str) -> None:
    spec = spec_with(Goal(metric=headline, min_ratio=1.5, against="competent"))
    assert screened_by(spec, METRICS).name == screening
    assert screened_by(spec_with(), METRICS).name == "request_throughput"


# -- goals


def value(name: str, ratio: float | None, ci_low: float | None = None, **changes: Any) -> BaselineValue:
    fields: dict[str, Any] = {
        "name": name, "baseline_class": "competent", "version": "1", "value": 1.0, "ratio": ratio,
        "ci_low": ratio if ci_low is None else ci_low, "ci_high": ratio,
    }  # fmt: skip
    return BaselineValue(**(fields | changes))


def goal_of(goal: Goal, *baselines: BaselineValue, candidate: float = 1.0, metric: str = "") -> GoalResult:
    noun = METRICS[metric or goal.metric]
    row = MetricResult(
        name=noun.name, unit=noun.unit, direction=noun.direction, role=Role.HEADLINE, load="c4", candidate=candidate,
        baselines=baselines,
    )  # fmt: skip
    (result,) = goal_results([row], spec=spec_with(goal))
    return result


def test_a_goal_against_a_class_takes_the_hardest_member() -> None:
    result = goal_of(HEADLINE, value("easy", 3.0), value("hard", 1.4), value("naive", 0.5, baseline_class="naive"))
    assert (result.against, result.ratio, result.met) == ("hard", 1.4, False)
    assert goal_of(HEADLINE, value("easy", 3.0), value("hard", 1.6)).met


def test_a_goal_against_a_class_leaves_the_other_table_out() -> None:
    result = goal_of(HEADLINE, value("same", 1.6), value("small", 0.9, precision="any"))
    assert (result.against, result.met) == ("same", True)


def test_a_goal_against_a_name_takes_that_baseline_in_its_table() -> None:
    goal = replace(HEADLINE, against="small")
    result = goal_of(goal, value("same", 1.6), value("small", 0.9, precision="any"))
    assert (result.against, result.ratio, result.met) == ("small", 0.9, False)


def test_above_one_the_interval_must_lie_above_one() -> None:
    assert not goal_of(HEADLINE, value("a", 1.6, 0.99)).met
    assert goal_of(HEADLINE, value("a", 1.6, 1.01)).met
    assert not goal_of(HEADLINE, replace(value("a", 1.6), ci_low=None)).met
    # parity is a point, no claim of being faster
    assert goal_of(replace(HEADLINE, min_ratio=0.95), value("a", 0.96, 0.8)).met


@pytest.mark.parametrize(
    "baselines",
    [
        (),
        (value("a", None),),
        (value("a", None, state="skipped", value=None),),
        (value("fast", None), value("slow", 4.0)),
        (value("other", 4.0, baseline_class="naive"),),
    ],
)
def test_a_missing_value_never_meets_a_goal(baselines: tuple[BaselineValue, ...]) -> None:
    assert not goal_of(HEADLINE, *baselines).met


def test_a_skipped_member_does_not_leave_the_class_open() -> None:
    assert goal_of(HEADLINE, value("a", 1.6), value("absent", None, state="skipped", value=None)).met


@pytest.mark.parametrize(
    ("goal", "candidate", "met", "shown", "unit"),
    [
        (Goal(metric="ttft_p50", max_ms=50.0), 0.05, True, 50.0, "ms"),
        (Goal(metric="ttft_p50", max_ms=50.0), 0.051, False, 51.0, "ms"),
        (Goal(metric="peak_memory", max_gib=2.0), 2.5, False, 2.5, "GiB"),
        (Goal(metric="output_throughput", min_per_s=100.0), 100.0, True, 100.0, "1/s"),
        (Goal(metric="output_throughput", min_per_s=100.0), 99.0, False, 99.0, "1/s"),
    ],
)
def test_absolute_goals(goal: Goal, candidate: float, met: bool, shown: float, unit: str) -> None:
    result = goal_of(goal, candidate=candidate)
    assert (result.met, result.unit, result.against) == (met, unit, "")
    assert result.value == pytest.approx(shown)


def test_an_absolute_goal_without_a_row_is_missed() -> None:
    result = goal_of(Goal(metric="ttft_p50", max_ms=50.0), metric="tpot_p50")
    assert (result.met, result.value, result.limit) == (False, None, 50.0)
