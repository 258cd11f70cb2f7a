"""Error rates of the decision under simulated noise, and the properties that hold for any windows."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vibeserve.benchmark import decide, noise_floor
from vibeserve.benchmark.simulation import Noise, simulate
from vibeserve.core.documents import read_document
from vibeserve.core.nouns import METRICS, Decision
from vibeserve.errors import SpecError

ROOT = Path(__file__).resolve().parents[2]
THROUGHPUT, TTFT = METRICS["output_throughput"], METRICS["ttft_p50"]
NUM_PAIRS = 8


def noise(within: float, *, between: float = 0.0, num_starts: int = 12, seed: int = 3) -> Noise:
    """Normal noise of known size within a pair of starts, and between them."""
    draw = np.random.default_rng(seed)
    starts = tuple(
        tuple(float(value) for value in draw.normal(draw.normal(0.0, between), within, size=16))
        for _ in range(num_starts)
    )
    return Noise(machine="normal", target="none", load="c1", window_s=8.0, starts=starts)


def rates(given_noise: Noise, *, num_candidates: int = 200, effect: float = 0.1, seed: int = 1):  # type: ignore[no-untyped-def]
    return simulate(
        given_noise, num_pairs=NUM_PAIRS, effect=effect, num_candidates=num_candidates, min_effect=0.02, seed=seed
    )


def test_under_the_noise_of_this_product_s_machine_few_are_taken_wrongly_and_most_gains_are_found() -> None:
    """The acceptance of the rule: below 5% of 200 candidates without a gain, above 80% of those with one of 10%."""
    shipped = read_document(ROOT / "benchmarks" / "noise" / "cpu.json", Noise)
    found = rates(shipped)
    assert found.candidates == 200 and found.num_pairs == NUM_PAIRS
    assert found.false_accept_rate < 0.05
    assert found.detection_rate > 0.8


def test_the_rates_follow_the_noise() -> None:
    calm, rough = rates(noise(0.01)), rates(noise(0.25))
    assert calm.false_accept_rate == 0.0 and calm.detection_rate == 1.0
    assert rough.detection_rate < 0.5, "a gain that the noise hides is not accepted"
    assert rough.median_floor > 10 * calm.median_floor
    assert rough.noise_sd == pytest.approx(0.25, rel=0.15)


def test_what_differs_between_starts_is_not_averaged_away() -> None:
    """A rule that looked at windows alone would call a lucky start a gain; these rates show it, so they are honest."""
    even, uneven = rates(noise(0.01)), rates(noise(0.01, between=0.1))
    assert even.false_accept_rate == 0.0
    assert uneven.false_accept_rate > 0.1


def test_they_are_the_seed_s() -> None:
    assert rates(noise(0.05), num_candidates=50) == rates(noise(0.05), num_candidates=50)
    assert rates(noise(0.05), num_candidates=50) != rates(noise(0.05), num_candidates=50, seed=2)


@pytest.mark.parametrize("starts", [(), ((0.1, 0.2),), ((0.1, math.nan, 0.2),)])
def test_noise_that_cannot_be_drawn_from_is_refused(starts: tuple[tuple[float, ...], ...]) -> None:
    with pytest.raises(SpecError, match="every start needs 3 or more finite log-ratios\nnext: invoke bench-decision"):
        rates(dataclasses.replace(noise(0.01), starts=starts))


def test_the_document_and_its_text() -> None:
    found = rates(noise(0.01), num_candidates=20)
    text = "\n".join(found.lines())
    assert "no effect    0.0% of 20 candidates accepted" in text
    assert "+10% true   100.0% of 20 candidates accepted" in text
    assert json.loads(json.dumps(dataclasses.asdict(found)))["schema_version"] == 1


Pairs = Sequence[tuple[float, float]]
positive = st.floats(min_value=1e-3, max_value=1e6)
pairs = st.lists(st.tuples(positive, positive), min_size=3, max_size=12)


def decided(windows: Pairs, *, metric: str = "output_throughput", **changes: object) -> Decision:
    options: dict[str, object] = {
        "metric": METRICS[metric], "noise_floor": 0.03, "min_effect": 0.02, "seed": 1, "num_resamples": 200,
    }  # fmt: skip
    ours, theirs = [{metric: a} for a, _ in windows], [{metric: b} for _, b in windows]
    return decide(ours, theirs, **(options | changes))  # type: ignore[arg-type]


@given(pairs)
@settings(max_examples=100, deadline=None)
def test_nothing_is_better_than_itself_nor_two_than_each_other(windows: list[tuple[float, float]]) -> None:
    assert not decided([(a, a) for a, _ in windows]).accepted
    there, back = decided(windows), decided([(b, a) for a, b in windows])
    assert not (there.accepted and back.accepted)


@given(pairs, st.floats(min_value=1e-3, max_value=1e3))
@settings(max_examples=60, deadline=None)
def test_units_do_not_matter(windows: list[tuple[float, float]], unit: float) -> None:
    scaled = decided([(a * unit, b * unit) for a, b in windows])
    plain = decided(windows)
    assert plain.headline is not None and scaled.headline is not None
    assert scaled.headline.ratio == pytest.approx(plain.headline.ratio, rel=1e-6)


@given(pairs)
@settings(max_examples=60, deadline=None)
def test_a_latency_is_a_throughput_turned_over(windows: list[tuple[float, float]]) -> None:
    throughput = decided(windows)
    latency = decided([(1 / a, 1 / b) for a, b in windows], metric="ttft_p50")
    assert latency.headline is not None and throughput.headline is not None
    assert latency.headline.ratio == pytest.approx(throughput.headline.ratio, rel=1e-6)


@given(pairs, st.integers(min_value=0, max_value=11), st.sampled_from([math.nan, math.inf, 0.0, -1.0, True]))
@settings(max_examples=60, deadline=None)
def test_one_number_that_is_none_refuses(windows: list[tuple[float, float]], place: int, bad: float) -> None:
    broken = [(bad if k == place % len(windows) else a, b) for k, (a, b) in enumerate(windows)]
    decision = decided(broken, complexity=(0, 9))
    assert not decision.accepted and decision.reason.startswith("invalid: ")


@given(pairs, st.floats(min_value=0.0, max_value=1.0))
@settings(max_examples=60, deadline=None)
def test_a_higher_floor_accepts_no_more(windows: list[tuple[float, float]], more: float) -> None:
    strict, mild = decided(windows, noise_floor=0.03 + more), decided(windows)
    assert mild.accepted or not strict.accepted


@given(st.lists(st.floats(min_value=-0.5, max_value=0.5), min_size=3, max_size=20))
@settings(max_examples=60, deadline=None)
def test_a_floor_is_no_less_than_nothing_and_the_same_whoever_was_first(logs: list[float]) -> None:
    floor = noise_floor(logs, seed=1, num_resamples=200)
    assert floor >= 0
    assert noise_floor([-value for value in logs], seed=1, num_resamples=200) == pytest.approx(floor, abs=1e-12)
