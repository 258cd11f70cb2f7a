"""Paired ratios, the noise floor, and decisions: on paper where possible, by seeded simulation for the error rates."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from vibeserve.benchmark import Guard, decide, noise_floor, paired_log_ratios, paired_ratio
from vibeserve.core.nouns import METRICS, Decision
from vibeserve.errors import RefusedError

THROUGHPUT = METRICS["output_throughput"]
TTFT = METRICS["ttft_p50"]


def windows(values: Sequence[float], *, ttft: float = 1.0) -> list[dict[str, float]]:
    return [{"output_throughput": value, "ttft_p50": ttft} for value in values]


def verdict(candidate: Sequence[float], incumbent: Sequence[float], **options: object) -> Decision:
    defaults: dict[str, object] = {"metric": THROUGHPUT, "noise_floor": 0.01, "min_effect": 0.02, "seed": 1}
    return decide(windows(candidate), windows(incumbent), **(defaults | options))  # type: ignore[arg-type]


BASE = [100.0, 104.0, 97.0, 101.0, 99.0, 103.0, 98.0, 102.0]


def test_the_ratio_is_the_median_of_the_pairs_and_lies_in_its_interval() -> None:
    gains = [1.1, 1.3, 1.2, 1.25, 1.15]
    interval = paired_ratio(windows([100 * gain for gain in gains]), windows([100.0] * 5), metric=THROUGHPUT, seed=1)
    assert interval.ratio == pytest.approx(1.2)
    assert interval.ci_low <= 1.2 <= interval.ci_high
    assert interval.num_pairs == 5
    assert interval.values == pytest.approx(gains)


def test_latency_ratios_are_turned_so_that_above_one_is_better() -> None:
    interval = paired_ratio(windows([1.0] * 4, ttft=0.5), windows([1.0] * 4, ttft=1.0), metric=TTFT, seed=1)
    assert interval.ratio == interval.ci_low == interval.ci_high == pytest.approx(2.0)


def test_intervals_are_the_seed_s_and_whole_starts_are_resampled() -> None:
    candidate, incumbent = windows([110, 111, 112, 130, 131, 132, 150, 151, 152]), windows([100.0] * 9)
    plain = paired_ratio(candidate, incumbent, metric=THROUGHPUT, seed=4)
    assert plain == paired_ratio(candidate, incumbent, metric=THROUGHPUT, seed=4)
    grouped = paired_ratio(candidate, incumbent, metric=THROUGHPUT, seed=4, groups=[0, 0, 0, 1, 1, 1, 2, 2, 2])
    assert grouped.ratio == plain.ratio
    assert grouped.ci_low == pytest.approx(1.11), "all draws of the slowest start alone"
    assert grouped.ci_high == pytest.approx(1.51)
    with pytest.raises(ValueError, match="2 groups for 9 pairs"):
        paired_ratio(candidate, incumbent, metric=THROUGHPUT, seed=4, groups=[0, 1])


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0, -1.0])
def test_a_number_that_is_not_there_is_refused(bad: float) -> None:
    with pytest.raises(RefusedError, match="pair 1: candidate has no usable output_throughput") as caught:
        paired_log_ratios(windows([1.0, bad, 1.0]), windows([1.0, 1.0, 1.0]), metric=THROUGHPUT)
    assert [reason.reason_class for reason in caught.value.reasons] == ["missing_metric"]  # type: ignore[attr-defined]


def test_windows_without_a_partner_are_refused() -> None:
    with pytest.raises(RefusedError, match="4 candidate and 3 incumbent windows; need 3 pairs"):
        paired_log_ratios(windows([1.0] * 4), windows([1.0] * 3), metric=THROUGHPUT)
    with pytest.raises(RefusedError, match="need 3 pairs"):
        paired_log_ratios(windows([1.0] * 2), windows([1.0] * 2), metric=THROUGHPUT)


def test_the_floor_shrinks_with_the_number_of_pairs_and_is_zero_without_noise() -> None:
    draw = np.random.default_rng(7)
    logs = list(draw.normal(0.0, 0.05, size=40))
    assert noise_floor(logs, seed=1, num_pairs=8) > noise_floor(logs, seed=1, num_pairs=32) > 0
    assert noise_floor([0.0] * 8, seed=1) == 0
    with pytest.raises(ValueError, match="needs 3 or more finite"):
        noise_floor([0.1, math.nan, 0.2], seed=1)
    with pytest.raises(ValueError, match="needs 3 or more finite"):
        noise_floor([0.1, 0.2], seed=1)


def test_a_clear_gain_is_accepted() -> None:
    decision = verdict([1.2 * value for value in BASE], BASE)
    assert decision.accepted
    assert decision.reason.startswith("headline: output_throughput x1.200 [1.200, 1.200] over 8 pairs, needed x1.020")
    assert decision.headline is not None
    assert decision.noise_floor == 0.01


def test_a_gain_below_the_floor_or_the_smallest_effect_is_refused() -> None:
    assert not verdict([1.015 * value for value in BASE], BASE).accepted
    assert not verdict([1.08 * value for value in BASE], BASE, noise_floor=0.1).accepted
    assert verdict([1.08 * value for value in BASE], BASE).accepted


def test_a_loss_is_refused_whatever_its_simplicity() -> None:
    decision = verdict([0.8 * value for value in BASE], BASE, complexity=(0, 9))
    assert not decision.accepted
    assert decision.reason.startswith("headline: ")


def test_a_wide_interval_is_refused() -> None:
    gains = [0.7, 1.6, 0.8, 1.5, 0.75, 1.55, 1.2, 1.3]
    assert not verdict([100 * gain for gain in gains], [100.0] * 8).accepted


def test_ties_go_to_the_simpler_candidate() -> None:
    tied = [1.001 * value for value in BASE]
    assert verdict(tied, BASE, complexity=(1, 2)).reason.startswith("tie: simpler, ")
    assert verdict(tied, BASE, complexity=(1, 2)).accepted
    assert not verdict(tied, BASE, complexity=(2, 2)).accepted
    assert not verdict(tied, BASE, complexity=(3, 2)).accepted


def test_a_broken_guard_beats_any_gain() -> None:
    guard = Guard(metric=TTFT, max_value=0.9)
    fast, slow = windows([200.0] * 8, ttft=1.0), windows([100.0] * 8, ttft=0.5)
    decision = decide(fast, slow, metric=THROUGHPUT, noise_floor=0.01, min_effect=0.02, seed=1, guards=[guard])
    assert not decision.accepted
    assert decision.reason == "guard: ttft_p50 1 s (max 0.9), incumbent 0.5"
    assert decision.headline is not None, "the gain stays on record"


def test_a_guard_that_the_incumbent_breaks_too_must_not_get_worse() -> None:
    guard = Guard(metric=TTFT, max_value=0.5)
    slow = windows([100.0] * 8, ttft=2.0)
    options = {"metric": THROUGHPUT, "noise_floor": 0.01, "min_effect": 0.02, "seed": 1, "guards": [guard]}
    assert decide(windows([150.0] * 8, ttft=1.5), slow, **options).accepted  # type: ignore[arg-type]
    assert not decide(windows([150.0] * 8, ttft=2.5), slow, **options).accepted  # type: ignore[arg-type]


def test_a_lower_bound_guard() -> None:
    guard = Guard(metric=METRICS["goodput"], min_value=1.0)
    rows = [{"output_throughput": 2.0, "goodput": 0.5}] * 3
    good = [{"output_throughput": 1.0, "goodput": 1.5}] * 3
    decision = decide(rows, good, metric=THROUGHPUT, noise_floor=0.0, min_effect=0.0, seed=1, guards=[guard])
    assert decision.reason == "guard: goodput 0.5 req/s (min 1), incumbent 1.5"


@pytest.mark.parametrize("floor", [math.nan, math.inf, -0.1])
def test_no_floor_no_comparison(floor: float) -> None:
    decision = verdict([2 * value for value in BASE], BASE, noise_floor=floor)
    assert not decision.accepted
    assert decision.reason == "invalid: no noise floor, no comparison"


def test_missing_values_refuse_and_never_raise() -> None:
    assert verdict([math.nan] * 8, BASE).reason.startswith("invalid: the pairs cannot be compared")
    unread = decide(
        [{"output_throughput": 2.0}] * 3,
        [{"output_throughput": 1.0}] * 3,
        metric=THROUGHPUT,
        noise_floor=0.0,
        min_effect=0.0,
        seed=1,
        guards=[Guard(metric=TTFT, max_value=1.0)],
    )
    assert not unread.accepted
    assert unread.reason.startswith("invalid: candidate has no usable ttft_p50")


def error_rate(gain: float, *, trials: int = 400, pairs: int = 8, noise: float = 0.05) -> float:
    """Share of accepted candidates of true `gain`, each judged with a floor from an A/A run of its own."""
    draw = np.random.default_rng(2026)
    accepted = 0
    for trial in range(trials):
        floor = noise_floor(list(draw.normal(0, noise, pairs)), seed=trial, num_resamples=400)
        candidate = 100 * gain * np.exp(draw.normal(0, noise, pairs))
        decision = verdict(list(candidate), [100.0] * pairs, noise_floor=floor, seed=trial, num_resamples=400)
        accepted += decision.accepted
    return accepted / trials


def test_a_true_tenth_is_found_and_nothing_is_not() -> None:
    assert error_rate(1.10) > 0.90
    assert error_rate(1.00) <= 0.03
