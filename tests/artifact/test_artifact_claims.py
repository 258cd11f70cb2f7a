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
        (1.45, 1.50, ClaimState.HOLDS),
        (1.35, 1.50, ClaimState.HOLDS),
        (1.34, 1.50, ClaimState.INCONCLUSIVE),
        (1.49, 1.499, ClaimState.REFUSED),
        (0.90, 0.95, ClaimState.REFUSED),
        (1.60, float("nan"), ClaimState.REFUSED),
        (float("nan"), 1.60, ClaimState.INCONCLUSIVE),
    ],
)
def test_the_claim_is_the_certified_lower_bound(ratio: float, ci_high: float, state: ClaimState) -> None:
    assert judge_ratio(1.5, ratio=ratio, ci_high=ci_high) is state


def test_a_stricter_regression_limit() -> None:
    assert judge_ratio(1.5, ratio=1.45, ci_high=1.6, max_regression=0.05) is ClaimState.HOLDS
    assert judge_ratio(1.5, ratio=1.42, ci_high=1.6, max_regression=0.05) is ClaimState.INCONCLUSIVE
    assert judge_ratio(1.5, ratio=1.49, ci_high=1.6, max_regression=0.0) is ClaimState.INCONCLUSIVE


def measured(peer: float) -> tuple[MetricResult, ...]:
    return (sample_metric("output_throughput", peer=peer),)


def test_only_headline_ratios_that_were_measured_again_are_claims() -> None:
    certified = sample_manifest().metrics
    claims = judge_claims(certified, measured(70.0))
    assert [(claim.metric, claim.load, claim.baseline) for claim in claims] == [
        ("output_throughput", "c8", "transformers_cb")
    ]
    assert overall(claims) is ClaimState.HOLDS and claim_refusals(claims) == []
    assert "1.71x [1.66, 1.78], claim 1.66x holds" in claims[0].text


def test_no_claim_measured_is_refused() -> None:
    assert overall([]) is ClaimState.INCONCLUSIVE
    assert claim_refusals([])[0].reason_class == "claim_not_measured"


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
