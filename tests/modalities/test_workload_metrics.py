"""The table of a workload's metrics, and what its `measure` may and may not say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from load_samples import text_bundle
from reversal import bundle_of, line_of

from vibeserve.benchmark import FakeClock, pooled_metrics, window_metrics
from vibeserve.contract import Record, Request
from vibeserve.core.nouns import METRICS
from vibeserve.errors import ContractError
from vibeserve.modalities import Bundle, known_metrics, metrics_of
from vibeserve.spec import Goal, Modality, Model, Spec, Workload

REQUEST = Request(request_id="r-0")


def record(*, scheduled_s: float, end_s: float, error: str | None = None, marks: tuple[float, ...] = ()) -> Record:
    return Record(
        request=REQUEST, scheduled_s=scheduled_s, sent_s=scheduled_s + 0.1, end_s=end_s, error=error,
        marks=tuple((at_s, 1) for at_s in marks),
    )  # fmt: skip


def row(num: int, *, took_s: float = 0.5) -> list[Record]:
    """One request a second, each with a number in the middle."""
    return [record(scheduled_s=float(k), end_s=k + took_s, marks=(k + took_s / 2,)) for k in range(num)]


def measured(bundle: Bundle, records: list[Record], *, start_s: float = 0.0, end_s: float = 10.0) -> dict[str, float]:
    return window_metrics(records, start_s=start_s, end_s=end_s, bundle=bundle)


def test_every_workload_has_the_framework_s_metrics_beside_its_own(tmp_path: Path) -> None:
    seen = measured(bundle_of(tmp_path), row(10))
    assert seen["request_throughput"] == seen["goodput"] == pytest.approx(1.0)
    assert seen["e2el_p50"] == pytest.approx(0.5)
    assert seen["numbers_per_s"] == pytest.approx(1.0)
    assert seen["first_p50"] == pytest.approx(0.25)
    assert seen["sent_lag_max_s"] == pytest.approx(0.1)
    assert (seen["num_finished"], seen["num_failed"], seen["num_in_flight"], seen["num_numbers"]) == (10, 0, 0, 10)
    assert "e2el_p99" not in seen, "ten requests are too few"


def test_failed_and_cut_requests_are_no_throughput_and_failed_ones_no_latency(tmp_path: Path) -> None:
    failed = [record(scheduled_s=float(k), end_s=k + 0.01, error="HTTP 500: x") for k in range(4)]
    cut = record(scheduled_s=1.0, end_s=9.0, error="cut")
    seen = measured(bundle_of(tmp_path), [*row(5), *failed, cut])
    assert (seen["num_finished"], seen["num_failed"], seen["num_in_flight"]) == (5, 4, 1)
    assert (seen["request_throughput"], seen["e2el_p50"], seen["oldest_in_flight_s"]) == (0.5, 0.5, 9.0)
    worse = measured(bundle_of(tmp_path), [*row(5), *failed, *failed])
    assert "e2el_p50" not in worse, "the median falls on a failed request"


@pytest.mark.parametrize(
    ("slo", "goodput"),
    [
        ({"ttft_s": 10.0, "tpot_s": 0.1}, 1.0),
        ({"ttft_s": 0.4}, 0.0),
        ({"ttft_s": 0.4, "e2el_s": 0.6}, 1.0),
        ({"ttft_s": 10.0, "e2el_s": 0.4}, 0.0),
    ],
)
def test_goodput_without_tokens_bounds_the_whole_reply(tmp_path: Path, slo: dict[str, float], goodput: float) -> None:
    assert measured(bundle_of(tmp_path, slo=slo), row(10))["goodput"] == pytest.approx(goodput)


def test_windows_are_pooled_and_hold_what_ended_in_them(tmp_path: Path) -> None:
    bundle, records = bundle_of(tmp_path), row(10)
    holed = pooled_metrics(records, windows=[(0.0, 2.0), (8.0, 10.0)], bundle=bundle)
    assert (holed["num_finished"], holed["request_throughput"]) == (4, 1.0)
    with pytest.raises(ValueError, match="windows must be non-empty intervals"):
        pooled_metrics(records, windows=[], bundle=bundle)


def test_a_workload_may_have_its_own_idea_of_goodput(tmp_path: Path) -> None:
    bundle = bundle_of(
        tmp_path,
        METRICS='METRICS = [Metric(name="goodput", unit="req/s", direction=Direction.MAX)]',
        measure="def measure(records, windows):\n    return {'goodput': 7.5, 'mean_pixels': 2, 'num_finished': 3}",
    )
    seen = measured(bundle, row(10))
    assert (seen["goodput"], seen["mean_pixels"], seen["num_finished"]) == (7.5, 2.0, 3.0)
    assert seen["request_throughput"] == 1.0


# -- the table


def test_text_has_the_metrics_that_it_always_had_in_their_order() -> None:
    metrics = metrics_of(text_bundle())
    assert list(metrics) == [
        "output_throughput", "request_throughput", "goodput", "ttft_p50", "ttft_p99", "tpot_p50", "tpot_p99", "itl_p50",
        "itl_p99", "e2el_p50", "e2el_p99", "peak_memory", "startup",
    ]  # fmt: skip
    assert all(METRICS[name] == metric for name, metric in metrics.items())


def test_a_workload_s_own_metrics_come_first(tmp_path: Path) -> None:
    metrics = metrics_of(bundle_of(tmp_path))
    assert list(metrics)[:2] == ["numbers_per_s", "first_p50"]
    assert set(metrics) == {"numbers_per_s", "first_p50", "request_throughput", "goodput", "e2el_p50", "e2el_p99",
                            "peak_memory", "startup"}  # fmt: skip
    window = FakeClock(metrics)
    window.declare("a", factor=2.0)
    (seen,) = window.read("a", [{"num_failed": 0.0}])
    assert seen["numbers_per_s"] == pytest.approx(200, rel=0.01)
    assert seen["first_p50"] == pytest.approx(1 / 200, rel=0.01)
    assert "ttft_p50" not in seen


@pytest.mark.parametrize(
    ("metrics", "problem"),
    [
        ("['x']", "'x' is no vibeserve.contract.Metric"),
        ('[Metric(name="Frames", unit="f", direction=Direction.MAX)]', "'Frames': names are lower case"),
        ('[Metric(name="num_frames", unit="f", direction=Direction.MAX)]', "num_* and mean_* need no entry"),
        ('[Metric(name="a", unit="f", direction=Direction.MAX)] * 2', "'a' is there twice"),
        ('[Metric(name="startup", unit="s", direction=Direction.MIN)]', "'startup' is the framework's own"),
        ('[Metric(name="goodput", unit="s", direction=Direction.MAX)]', "'goodput' is in req/s, max is better"),
        ('[Metric(name="e2el_p50", unit="s", direction=Direction.MAX)]', "'e2el_p50' is in s, min is better"),
    ],
)
def test_a_table_that_cannot_stand_is_refused_with_its_file(tmp_path: Path, metrics: str, problem: str) -> None:
    bundle = bundle_of(tmp_path, METRICS=f"METRICS = {metrics}")
    with pytest.raises(ContractError) as caught:
        metrics_of(bundle)
    first, second = str(caught.value).splitlines()[:2]
    assert first == f"{tmp_path / 'workload.py'}: METRICS"
    assert problem in second


def test_a_table_that_is_no_list_is_told_with_its_file(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match=r"workload\.py: TypeError: 'int' object is not iterable"):
        metrics_of(bundle_of(tmp_path, METRICS="METRICS = 3"))


# -- the values


@pytest.mark.parametrize(
    ("returned", "problem"),
    [
        ("{'frames_per_s': 1.0}", "'frames_per_s' is not in METRICS; valid: first_p50, numbers_per_s"),
        ("{'peak_memory': 1.0}", "'peak_memory' is not in METRICS"),
        ("{3: 1.0}", "3 is not in METRICS"),
        ("{'numbers_per_s': float('nan')}", "numbers_per_s: nan is not finite and at least 0; leave out"),
        ("{'numbers_per_s': float('inf')}", "numbers_per_s: inf is not finite"),
        ("{'numbers_per_s': -0.5}", "numbers_per_s: -0.5 is not finite and at least 0"),
        ("{'numbers_per_s': True}", "numbers_per_s: True is no number"),
        ("{'numbers_per_s': None}", "numbers_per_s: None is no number"),
        ("{'num_numbers': -1}", "num_numbers: -1 is not finite"),
    ],
)
def test_what_is_no_value_is_never_a_number(tmp_path: Path, returned: str, problem: str) -> None:
    bundle = bundle_of(tmp_path, measure=f"def measure(records, windows):\n    return {returned}")
    with pytest.raises(ContractError) as caught:
        measured(bundle, row(10))
    first, second = str(caught.value).splitlines()[:2]
    assert first == f"{tmp_path / 'workload.py'}: measure returned no metrics"
    assert problem in second


def test_a_measure_that_raises_or_returns_no_mapping_is_told_with_its_file(tmp_path: Path) -> None:
    raising = bundle_of(tmp_path, measure="def measure(records, windows):\n    return records[99]  # here")
    with pytest.raises(ContractError) as caught:
        measured(raising, row(10))
    assert str(caught.value).startswith(f"{line_of(raising, '# here')}: IndexError: list index out of range")
    listing = bundle_of(tmp_path / "..", measure="def measure(records, windows):\n    return [1.0]")
    with pytest.raises(ContractError, match="measure returned list, not a mapping of names to numbers"):
        measured(listing, row(10))


# -- what a spec's goals may name


def spec_of(folder: Path, **model: Any) -> Spec:
    spec = Spec(model=Model(**model), workload=Workload(kind="numbers"), goals=[Goal(metric="numbers_per_s")])
    spec.target.dir = str(folder)
    return spec


def test_a_spec_s_goals_may_name_what_its_folder_measures(tmp_path: Path) -> None:
    bundle_of(tmp_path)
    (tmp_path / "target.yaml").write_text("")
    for name in ("reference", "check", "faults"):
        (tmp_path / f"{name}.py").write_text("")
    assert "numbers_per_s" in known_metrics(spec_of(tmp_path, modality=Modality.custom))
    assert "ttft_p50" not in known_metrics(spec_of(tmp_path, modality=Modality.custom))
    assert known_metrics(Spec()) == metrics_of(text_bundle())


def test_a_modality_without_a_workload_yet_knows_the_built_in_names() -> None:
    assert known_metrics(Spec(model=Model(modality=Modality.custom))) == METRICS
    assert "image_throughput" in known_metrics(Spec(model=Model(modality=Modality.image)))


# -- cheap versions


def test_cheaper_versions_of_a_request_are_optional_and_checked(tmp_path: Path) -> None:
    bare = bundle_of(tmp_path)
    assert bare.shortened(REQUEST) is bare.plain(REQUEST) is REQUEST
    both = bundle_of(
        tmp_path / "..",
        shortened="def shortened(request):\n    return Request(request_id='short')",
        plain="def plain(request):\n    return None",
    )
    assert both.shortened(REQUEST).request_id == "short"
    with pytest.raises(ContractError, match=r"workload\.py: plain returned NoneType, not Request"):
        both.plain(REQUEST)
