"""The fault study: its statistics, its trials, and one run of it over the tiny model."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from vibeserve.accuracy.roc import (
    FACTORS,
    NEVER,
    auc,
    critical_factor,
    roc_points,
    share_refused,
    upper_bound,
)
from vibeserve.accuracy.study import Design, Gate, Served, Study, draw_trial, make_study, scaled
from vibeserve.accuracy.study_text import render
from vibeserve.contract import Distance, ReplyDistances
from vibeserve.core.documents import finite_data, from_data, to_data
from vibeserve.modalities import Bundle, bundle_ref, open_bundle
from vibeserve.modalities.binomial import binomial_quantile
from vibeserve.spec import Spec, Tolerances, Workload

REPLIES, TOKENS = 8, 50


def test_auc_is_the_probability_that_a_fault_scores_above_an_honest_one() -> None:
    assert auc([1, 2, 3], [4, 5]) == 1.0
    assert auc([4, 5], [1, 2, 3]) == 0.0
    assert auc([1, 3], [2, 3]) == pytest.approx((1 + 0 + 1 + 0.5) / 4)
    assert auc([], [1.0]) is None and auc([1.0], []) is None


def test_the_critical_factor_is_the_smallest_that_passes() -> None:
    assert critical_factor(lambda factor: factor < 1.0) == 1.0
    assert critical_factor(lambda factor: False) == FACTORS[0]
    assert critical_factor(lambda factor: True) == NEVER
    assert 1.0 in FACTORS and list(FACTORS) == sorted(FACTORS)


def test_points_of_the_curve() -> None:
    points = {point.factor: point for point in roc_points([0.5, 0.5, 2.0], [0.5, 8.0])}
    assert (points[1.0].false_refusals, points[1.0].detected) == (pytest.approx(1 / 3), 0.5)
    assert (points[4.0].false_refusals, points[4.0].detected) == (0.0, 0.5)
    assert math.isnan(share_refused([]))


def test_none_of_200_does_not_mean_never() -> None:
    assert upper_bound(0, 200) == pytest.approx(0.0149, abs=1e-4)  # 1 - 0.05 ** (1 / 200)
    assert upper_bound(3, 60) == pytest.approx(0.1246, abs=2e-3)
    assert upper_bound(5, 5) == 1.0


def test_binomial_quantiles() -> None:
    assert binomial_quantile(10, 0.5, confidence=0.5) == 5
    assert binomial_quantile(10, 0.0, confidence=0.999) == 0
    assert binomial_quantile(10, 1.0, confidence=0.999) == 10
    assert binomial_quantile(1000, 0.03, confidence=0.999) == 48


def test_tolerances_are_scaled_towards_mildness() -> None:
    mild = scaled(Tolerances(limits={"margin/max": 1.0}), factor=2.0)
    assert (mild.top1_agreement_min, mild.mean_margin_max_nats) == (pytest.approx(0.94), 0.006)
    assert (mild.logprob_mean_max, mild.limits) == (0.1, {"margin/max": 2.0})
    assert scaled(Tolerances(), factor=64.0).top1_agreement_min == 0.0
    assert scaled(Tolerances(), factor=1.0) == Tolerances()


def replies(margins: list[float], *, logprob: float = 0.01) -> tuple[ReplyDistances, ...]:
    """`REPLIES` replies that share these margins."""
    return tuple(
        ReplyDistances(
            request_id=str(number),
            distances=(
                Distance(name="margin", values=tuple(margins)),
                Distance(name="logprob_difference", values=(logprob,) * len(margins)),
            ),
        )
        for number in range(REPLIES)
    )


def served(name: str, margins: list[float], *, is_wrong: bool, logprob: float = 0.01) -> Served:
    return Served(
        name=name, family="made up", is_wrong=is_wrong, strength=name, replies=replies(margins, logprob=logprob)
    )


@pytest.fixture(scope="module")
def bundle(tiny_model_dir: Path) -> Bundle:
    return open_bundle(bundle_ref(Spec(workload=Workload(kind="chat")), model_dir=tiny_model_dir))


def test_one_reply_in_eight_of_a_trial_carries_logprobs() -> None:
    for num_replies, expected in ((32, 4), (3, 1)):
        trial = draw_trial(
            replies([0.0] * 4), num_replies=num_replies, logprob_share=8, distance="logprob_difference",
            generator=random.Random(1),
        )  # fmt: skip
        assert len(trial) == num_replies
        assert sum(bool(reply.values("logprob_difference")) for reply in trial) == expected
    bare = draw_trial(
        replies([0.0]), num_replies=4, logprob_share=0, distance="logprob_difference", generator=random.Random(1)
    )
    assert not any(reply.values("logprob_difference") for reply in bare)


def test_a_study_says_what_is_refused_by_which_rule_and_by_how_much(bundle: Bundle) -> None:
    rounded = [0.1] + [0.0] * (TOKENS - 1)
    study = make_study(
        bundle,
        [
            served("honest", rounded, is_wrong=False),
            served("flips", [0.03] * 4 + [0.0] * (TOKENS - 4), is_wrong=True),
            served("far", [1.0] * 4 + [0.0] * (TOKENS - 4), is_wrong=True),
            served("mild", rounded, is_wrong=True, logprob=0.06),
            served("unseen", rounded, is_wrong=True),
        ],
        target="made up", design=Design(trial_replies=4, num_trials=6), num_tokens=TOKENS,
    )  # fmt: skip
    rows = {row.name: row for row in study.rows}
    assert {name: row.refused for name, row in rows.items()} == {
        "honest": 0.0, "flips": 1.0, "far": 1.0, "mild": 1.0, "unseen": 0.0,
    }  # fmt: skip
    assert rows["flips"].rules == {"wrong_tokens:top1": 6}
    assert set(rows["far"].rules) == {"wrong_tokens:top1", "wrong_tokens:far", "margin_mean"}
    assert rows["mild"].rules == {"logprob_difference_mean": 6}
    assert rows["unseen"].auc == 0.5 and rows["far"].auc == 1.0 and rows["honest"].auc is None
    assert rows["honest"].critical_median < 1.0 < rows["mild"].critical_median < rows["far"].critical_median
    at_one = next(point for point in study.roc if point.factor == 1.0)
    assert (at_one.false_refusals, at_one.detected) == (0.0, 0.75)


def test_a_study_is_a_document_and_a_pure_function_of_its_seed(bundle: Bundle) -> None:
    plants = [served("a", [0.0] * 9 + [0.1], is_wrong=False), served("b", [0.3] * 10, is_wrong=True)]
    design = Design(trial_replies=4, num_trials=3, seed=2)
    study = make_study(bundle, plants, target="t", design=design, num_tokens=10)
    assert study == make_study(bundle, plants, target="t", design=design, num_tokens=10)
    assert from_data(Study, json.loads(json.dumps(finite_data(to_data(study))))) == study
    text = render(replace(study, sampling=()))
    assert "honest trials refused at factor 1: at most" in text and "margin_mean" in text


def test_the_gate_shows_the_tolerances_it_judges_by(bundle: Bundle) -> None:
    assert Gate(bundle).shown["top1_agreement_min"] == Tolerances().top1_agreement_min


def run_bench(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    from vibeserve.accuracy.bench import main

    assert main(["--target", "tiny_cpu", "--threads", "1", *arguments]) == 0
    return capsys.readouterr().out


FEW = ["--replies", "24", "--tokens", "24", "--trials", "6"]
PLANTED = [
    "mantissa_flips_100", "mantissa_flips_10000", "top_exponent_flip_1", "middle_layer_skipped", "window_0.5",
    "rope_late", "rope_base", "stale_block_1_in_1", "sampled_at_1", "q4_symmetric_group32", "kv_4_bits",
]  # fmt: skip


def test_the_command_refuses_planted_faults_of_every_family_and_passes_what_is_right(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_model_dir: Path
) -> None:
    monkeypatch.setenv("VIBESERVE_CACHE", str(tiny_model_dir.parents[1]))
    document: Any = json.loads(run_bench([*FEW, "--json", "--only", *PLANTED], capsys))
    rows = {row["name"]: row for row in document["rows"]}
    honest = {"f32", "bf16", "bf16_weights", "int8_group32", "rope_all_shifted"}
    assert set(rows) == honest | set(PLANTED)
    assert {name: rows[name]["refused"] for name in honest} == dict.fromkeys(honest, 0.0)
    # a hundred flipped bits of 80,000 weights weigh less than rounding all of them to bf16: nobody can see them
    assert {name for name in PLANTED if rows[name]["refused"] < 1.0} == {"mantissa_flips_100"}
    assert rows["f32"]["figures"]["mean_margin"] == 0.0 == rows["rope_all_shifted"]["figures"]["num_far_disagreements"]
    assert rows["f32"]["component"]["kl_mean"] < 1e-9 < rows["bf16"]["component"]["kl_mean"]
    assert rows["rope_late"]["component"] == {} and rows["rope_base"]["component"]["kl_mean"] > 1e-2
    sampling = {row["name"]: row["refused"] for row in document["sampling"]}
    assert all(share == 0.0 for name, share in sampling.items() if "as asked" in name)
    assert sampling["greedy where T = 1 is asked"] == sampling["one seed for all"] == sampling["top_p ignored"] == 1.0
