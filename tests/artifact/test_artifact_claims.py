"""The claim rule: what a re-measured ratio says about the certified one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from artifact_samples import sample_manifest, sample_metric

from vibeserve.artifact.claims import ClaimState, claim_refusals, judge_claims, judge_ratio, overall
from vibeserve.core.manifest import MetricResult


@pytest.mark.parametrize(
    ("ratio", "ci_high", "state"),
    [
        (1.60, 1.70, ClaimState.HOLDS),
        (1.36, 1.40, ClaimState.HOLDS),
        (1.34, 1.40, ClaimState.INCONCLUSIVE),
        (1.30, 1.34, ClaimState.REFUSED),
        (0.90, 0.95, ClaimState.REFUSED),
        (1.60, float("nan"), ClaimState.REFUSED),
        (float("nan"), 1.60, ClaimState.INCONCLUSIVE),
    ],
)
def test_the_claim_is_the_certified_median(ratio: float, ci_high: float, state: ClaimState) -> None:
    assert judge_ratio(1.5, ratio=ratio, ci_high=ci_high) is state


def test_a_claim_above_1_holds_above_1_only() -> None:
    assert judge_ratio(1.05, ratio=1.01, ci_high=1.02) is ClaimState.HOLDS
    assert judge_ratio(1.05, ratio=0.97, ci_high=1.02) is ClaimState.INCONCLUSIVE
    assert judge_ratio(1.05, ratio=0.97, ci_high=0.99) is ClaimState.REFUSED
    assert judge_ratio(0.98, ratio=0.90, ci_high=0.99) is ClaimState.HOLDS


def test_a_stricter_regression_limit() -> None:
    assert judge_ratio(1.5, ratio=1.45, ci_high=1.6, max_regression=0.05) is ClaimState.HOLDS
    assert judge_ratio(1.5, ratio=1.42, ci_high=1.6, max_regression=0.05) is ClaimState.INCONCLUSIVE
    assert judge_ratio(1.5, ratio=1.49, ci_high=1.6, max_regression=0.0) is ClaimState.INCONCLUSIVE


@pytest.mark.parametrize("again", [0.8, 1.0, 1.2, 1.4, 1.55, 1.61, 1.65, 1.7, 1.8, 2.5])
@pytest.mark.parametrize("half", [0.01, 0.3])
def test_a_wide_certified_interval_is_as_hard_to_hold_as_a_narrow_one(again: float, half: float) -> None:
    """By the lower end of the certified interval, 1.3x bore out 1.8x [1.2, 2.7] and not 1.8x [1.75, 1.85]."""
    narrow, wide = (certified_with(1.8, low=low, high=high) for low, high in ((1.75, 1.85), (1.2, 2.7)))
    now = certified_with(again, low=again - half, high=again + half)
    states = [judge_claims(before, now)[0].state for before in (narrow, wide)]
    assert states[0] is states[1]
    expected = ClaimState.REFUSED if again + half < 1.62 else ClaimState.INCONCLUSIVE
    assert states[0] is (ClaimState.HOLDS if again >= 1.62 else expected)


def certified_with(ratio: float, *, low: float, high: float) -> tuple[MetricResult, ...]:
    metric = sample_metric("output_throughput")
    return (replace(metric, baselines=(replace(metric.baselines[0], ratio=ratio, ci_low=low, ci_high=high),)),)


def test_what_holds_below_the_certified_interval_says_so() -> None:
    (claim,) = judge_claims(certified_with(1.8, low=1.75, high=1.85), certified_with(1.7, low=1.68, high=1.72))
    assert claim.text.endswith("1.70x [1.68, 1.72], claim 1.80x holds, below its interval (from 1.75x)")


def test_a_certified_ratio_whose_server_is_not_here_is_not_said_to_hold() -> None:
    metric = sample_metric("output_throughput")
    vllm = replace(metric.baselines[0], name="vllm")
    certified = (replace(metric, baselines=(metric.baselines[0], vllm)),)
    claims = judge_claims(certified, (metric,))
    assert [claim.state for claim in claims] == [ClaimState.HOLDS, ClaimState.NOT_MEASURED]
    assert claims[1].text == "output_throughput c8 against vllm: claim 1.71x not measured again"
    assert overall(claims) is ClaimState.HOLDS_IN_PART and claim_refusals(claims) == []
    skipped = replace(vllm, state="skipped", value=None, ratio=None, ci_low=None, ci_high=None)
    assert judge_claims(certified, (replace(metric, baselines=(metric.baselines[0], skipped)),)) == claims


def measured(peer: float) -> tuple[MetricResult, ...]:
    return (sample_metric("output_throughput", peer=peer),)


def test_only_headline_ratios_that_were_measured_again_are_claims() -> None:
    certified = sample_manifest().metrics
    claims = judge_claims(certified, measured(70.0))
    assert [(claim.metric, claim.load, claim.baseline) for claim in claims] == [
        ("output_throughput", "c8", "transformers_cb")
    ]
    assert overall(claims) is ClaimState.HOLDS and claim_refusals(claims) == []
    assert "1.71x [1.66, 1.78], claim 1.71x holds" in claims[0].text


def test_no_claim_measured_is_refused() -> None:
    for claims in ([], judge_claims(sample_manifest().metrics, ())):
        assert overall(claims) is ClaimState.INCONCLUSIVE
        assert [reason.reason_class for reason in claim_refusals(claims)] == ["claim_not_measured"]


def test_a_naive_ratio_is_a_claim_only_where_no_competent_baseline_was_measured() -> None:
    metric = sample_metric("output_throughput")
    naive = replace(metric.baselines[0], name="transformers", baseline_class="naive")
    both = (replace(metric, baselines=(naive, *metric.baselines)),)
    assert [claim.baseline for claim in judge_claims(both, both)] == ["transformers_cb"]
    alone = (replace(metric, baselines=(naive,)),)
    assert [claim.baseline for claim in judge_claims(alone, alone)] == ["transformers"]


def test_one_refused_claim_outweighs_the_others() -> None:
    metric = sample_metric("output_throughput")
    other = replace(metric.baselines[0], name="vllm")
    certified = (replace(metric, baselines=(metric.baselines[0], other)),)
    slower = replace(other, ratio=1.0, ci_low=0.9, ci_high=1.1)
    claims = judge_claims(certified, (replace(metric, baselines=(metric.baselines[0], slower)),))
    assert [claim.state for claim in claims] == [ClaimState.HOLDS, ClaimState.REFUSED]
    assert overall(claims) is ClaimState.REFUSED
    assert [reason.reason_class for reason in claim_refusals(claims)] == ["regression"]
