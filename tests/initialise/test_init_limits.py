"""Limits between honest noise and the smallest fault."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from vibeserve.errors import RefusedError
from vibeserve.initialise.calibrate import calibrate_text
from vibeserve.initialise.folder_files import Calibration
from vibeserve.initialise.limits import SAFETY, Tried, choose_limits
from vibeserve.spec import Spec


def replies(fault: str, *, is_wrong: bool, **values: list[float]) -> list[Tried]:
    """One reply per position of the lists."""
    count = len(next(iter(values.values())))
    return [
        Tried(fault=fault, is_wrong=is_wrong, distances={name: found[number] for name, found in values.items()})
        for number in range(count)
    ]


def test_the_geometric_mean_of_largest_noise_and_smallest_fault() -> None:
    tried = [
        *replies("bf16", is_wrong=False, far=[1e-4, 4e-4]),
        *replies("stale", is_wrong=True, far=[0.8, 0.9]),
        *replies("cut", is_wrong=True, far=[0.3, 0.04]),
    ]
    (limit,) = choose_limits(tried)
    assert limit.bound == pytest.approx(math.sqrt(4e-4 * 0.04))
    assert (limit.noise, limit.fault, limit.fault_value) == (4e-4, "cut", 0.04)
    assert limit.line() == "far: noise up to 0.0004, smallest fault cut 0.04"


def test_each_distance_is_set_by_the_faults_that_it_sees() -> None:
    tried = [
        *replies("bf16", is_wrong=False, angle=[1e-4], error=[1e-3]),
        # the right direction with the wrong length: only the error sees it
        *replies("not normalised", is_wrong=True, angle=[1e-6], error=[0.5]),
        *replies("stale", is_wrong=True, angle=[0.9], error=[0.4]),
    ]
    angle, error = choose_limits(tried)
    assert (angle.fault, error.fault) == ("stale", "stale")
    assert angle.bound == pytest.approx(math.sqrt(1e-4 * 0.9), rel=0.05)


def test_a_distance_that_sees_no_fault_keeps_noise_out_of_trouble() -> None:
    tried = [
        *replies("bf16", is_wrong=False, useless=[0.3], error=[1e-3]),
        *replies("stale", is_wrong=True, useless=[0.2], error=[0.4]),
    ]
    useless, _ = choose_limits(tried)
    assert useless.bound == SAFETY * 0.3
    assert useless.line() == "useless: noise up to 0.3; it tells no fault from noise, so 2 x noise"


def test_noise_of_nothing_at_all() -> None:
    tried = [*replies("bf16", is_wrong=False, far=[0.0]), *replies("stale", is_wrong=True, far=[1.0])]
    (limit,) = choose_limits(tried)
    assert 0 < limit.bound < 0.1


def test_a_reply_that_cannot_be_compared_is_infinitely_far() -> None:
    tried = [*replies("bf16", is_wrong=False, far=[0.1]), *replies("no vector", is_wrong=True, far=[math.inf])]
    (limit,) = choose_limits(tried)
    assert limit.bound == pytest.approx(0.2)


@pytest.mark.parametrize("value", [4e-3, 1e-3, 0.0])
def test_a_fault_within_the_noise_is_refused_with_the_numbers(value: float) -> None:
    tried = [*replies("bf16", is_wrong=False, far=[1e-3]), *replies("subtle", is_wrong=True, far=[value, 0.9])]
    with pytest.raises(RefusedError) as raised:
        choose_limits(tried)
    assert str(raised.value).splitlines() == [
        "no limits can tell these faults from honest noise:",
        f"  subtle: far from {value:.2g}, noise up to 0.001",
        "next: give check.py a distance that sees them, make the faults of faults.py wrong beyond doubt, or the noisy"
        " one less noisy",
    ]
    assert raised.value.exit_code == 3


def test_limits_keep_their_distance_to_the_noise() -> None:
    for spread in (5.1, 10.0, 1e3):
        tried = [*replies("bf16", is_wrong=False, far=[1.0]), *replies("stale", is_wrong=True, far=[spread])]
        (limit,) = choose_limits(tried)
        assert SAFETY <= limit.bound < spread / SAFETY


@pytest.mark.parametrize(("default", "is_kept"), [(0.03, True), (0.0015, False), (0.5, False)])
def test_a_default_that_fits_is_kept(default: float, is_kept: bool) -> None:
    tried = [*replies("bf16", is_wrong=False, far=[1e-3]), *replies("stale", is_wrong=True, far=[0.4])]
    (limit,) = choose_limits(tried, defaults={"far": default})
    assert limit.is_default is is_kept
    assert limit.bound == (default if is_kept else 0.02)
    assert ("the default 0.03 is kept" in limit.line()) is is_kept


def calibrated(monkeypatch: pytest.MonkeyPatch, tried: list[Tried]) -> Calibration:
    """What `calibrate_text` makes of these measurements."""
    monkeypatch.setattr("vibeserve.initialise.calibrate._scores", lambda *_, **__: tried)
    monkeypatch.setattr("vibeserve.initialise.calibrate._pooled", lambda each: each)
    return calibrate_text(Spec(), model_dir=Path("nowhere"), run_dir=Path("nowhere"))


def text_trial(*, noise: float, fault: float) -> list[Tried]:
    """One noisy and one wrong trial of text; the share of disagreeing tokens is what varies."""
    other = {"max_disagreement_margin": 0.01, "mean_margin": 1e-4, "logprob_mean": 0.01, "logprob_p99": 0.03}
    wrong = {name: 1000 * value for name, value in other.items()}
    return [
        Tried(fault="bfloat16", is_wrong=False, distances={"disagreement_share": noise, **other}),
        Tried(fault="stale", is_wrong=True, distances={"disagreement_share": fault, **wrong}),
    ]


def test_text_keeps_the_framework_s_tolerances(monkeypatch: pytest.MonkeyPatch) -> None:
    # half of the noise that the default allows, and nearly all of it: neither is a reason to loosen it
    for noise in (0.015, 0.029):
        assert calibrated(monkeypatch, text_trial(noise=noise, fault=0.4)).tolerances == {}


def test_text_is_tightened_where_a_fault_would_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    found = calibrated(monkeypatch, text_trial(noise=0.001, fault=0.025))
    assert found.tolerances == {"top1_agreement_min": pytest.approx(0.995)}


def test_text_whose_noise_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError) as raised:
        calibrated(monkeypatch, text_trial(noise=0.05, fault=0.4))
    assert str(raised.value).startswith(
        "the model in bfloat16 lies beyond the accuracy gate's own limits:\n"
        "  disagreement_share: noise up to 0.05, at most 0.03\nnext: "
    )
