"""What a finished run says it cost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from artifact_samples import sample_manifest, sample_metric

from vibeserve.build.cost import RunCost, measured_cost
from vibeserve.build.stamps import make_stamp, write_stamp
from vibeserve.build.target import RunSummary
from vibeserve.core.manifest import Manifest
from vibeserve.plan import Plan
from vibeserve.spec import Hardware


def plan_with(usd_per_hour: float, *, count: int = 1) -> Plan:
    hardware = Hardware(name="h100", usd_per_hour=usd_per_hour, count=count)
    return cast(Plan, SimpleNamespace(spec=SimpleNamespace(hardware=hardware)))


def steps_of(folder: Path, *seconds: float) -> Path:
    for number, spent in enumerate(seconds):
        stamp = make_stamp(f"step{number}", key="k", document={}, outputs=(), seconds=spent)
        write_stamp(folder / f"step{number}" / "stamp.json", stamp)
    return folder


def manifest_with(candidate: float, peer: float) -> Manifest:
    requests = replace(sample_metric("output_throughput", candidate=candidate, peer=peer), name="request_throughput")
    return sample_manifest(metrics=(sample_metric("output_throughput"), requests))


def test_a_run_pays_back_by_what_was_measured(tmp_path: Path) -> None:
    cost = measured_cost(plan_with(3.0, count=2), manifest_with(2.0, 1.0), steps_dir=steps_of(tmp_path, 600, 1200))
    assert cost is not None
    # half an hour of two devices at 3 USD: 3 USD. A request costs 6 / 3600 / 1 before, half of that after
    assert (cost.device_hours, cost.usd, cost.against) == (1.0, 3.0, "transformers_cb")
    assert cost.break_even_requests == pytest.approx(3.0 / (6 / 3600 / 2))
    assert str(cost) == "1.00 device-hours, 3.00 USD; pays back after 0.0036 million requests against transformers_cb"


def test_a_request_that_is_no_cheaper_never_pays_back(tmp_path: Path) -> None:
    cost = measured_cost(plan_with(3.0), manifest_with(1.0, 1.0), steps_dir=steps_of(tmp_path, 3600))
    assert str(cost) == "1.00 device-hours, 3.00 USD; a request is no cheaper than by transformers_cb"


def test_without_a_certified_rate_only_the_price_is_told(tmp_path: Path) -> None:
    cost = measured_cost(plan_with(3.0), sample_manifest(), steps_dir=steps_of(tmp_path, 3600))
    assert str(cost) == "1.00 device-hours, 3.00 USD; no price of a request to compare with"


def test_without_a_price_or_a_record_there_is_no_cost(tmp_path: Path) -> None:
    assert measured_cost(plan_with(0.0), manifest_with(2.0, 1.0), steps_dir=steps_of(tmp_path, 600)) is None
    assert measured_cost(plan_with(3.0), manifest_with(2.0, 1.0), steps_dir=tmp_path / "absent") is None


def test_the_summary_tells_it() -> None:
    cost = RunCost(device_hours=1.0, usd=3.0, against="vllm", break_even_requests=2e6)
    summary = RunSummary(artifact="a", latest="l", manifest=sample_manifest(), cost=cost)
    assert "cost        1.00 device-hours, 3.00 USD; pays back after 2 million requests against vllm" in str(summary)
