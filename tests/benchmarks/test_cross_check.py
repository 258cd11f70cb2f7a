"""What the comparison with guidellm reads of its report, and how the two are set side by side."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "cross_check.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cross_check", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # a dataclass looks its module up
    import sys

    sys.modules["cross_check"] = module
    spec.loader.exec_module(module)
    return module


def statistics(value: float) -> dict[str, dict[str, float]]:
    return {"successful": {"mean": value, "median": value + 1}}


REPORT = {
    "benchmarks": [
        {
            "metrics": {
                "output_tokens_per_second": statistics(80.0), "time_to_first_token_ms": statistics(249.0),
                "inter_token_latency_ms": statistics(9.0), "time_per_output_token_ms": statistics(11.0),
                "request_latency": statistics(2.0),
            }
        }
    ]
}  # fmt: skip


def test_rates_are_means_latencies_medians_in_seconds(script: ModuleType) -> None:
    assert script.read_report(REPORT) == {
        "output_throughput": 80.0, "ttft_p50": 0.25, "itl_p50": 0.01, "tpot_p50": 0.012, "e2el_p50": 3.0,
    }  # fmt: skip


def test_a_report_of_several_benchmarks_or_without_a_metric_is_no_answer(script: ModuleType) -> None:
    with pytest.raises(ValueError, match="too many values"):
        script.read_report({"benchmarks": REPORT["benchmarks"] * 2})
    with pytest.raises(KeyError, match="request_latency"):
        metrics = {name: row for name, row in REPORT["benchmarks"][0]["metrics"].items() if name != "request_latency"}
        script.read_report({"benchmarks": [{"metrics": metrics}]})


def test_ratios_are_those_of_rounds_and_what_has_none_is_too_few(script: ModuleType) -> None:
    mine = [{"output_throughput": value, "ttft_p50": 0.2} for value in (80.0, 90.0, 100.0)]
    other = [{"output_throughput": 100.0, "ttft_p50": 0.1} for _ in mine]
    lines = script.table(list(zip(mine, other, strict=True)))
    assert lines[0].endswith("ratio over 3 rounds")
    assert lines[1].split() == ["output_throughput", "90", "100", "tok/s", "0.900", "[0.800,", "1.000]"]
    assert lines[2].split() == ["ttft_p50", "200", "100", "ms", "2.000", "[2.000,", "2.000]"]
    assert lines[3].split() == ["itl_p50", "too", "few"]
