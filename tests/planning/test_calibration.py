"""Forecasts against what was measured."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from test_planning_views import proposal, record, refusal

from vibeserve.core.nouns import Decision, Outcome, RatioInterval, Round
from vibeserve.planning import calibration_of, calibration_text, scored, scored_text


def measured(forecast: float, ratio: float, *, width: float = 0.05, **changes: Any) -> Round:
    interval = RatioInterval(ratio=ratio, ci_low=ratio - width, ci_high=ratio + width, num_pairs=5)
    done = replace(
        record(Outcome.ACCEPTED), proposal=proposal(forecast_ratio=forecast),
        decision=Decision(accepted=True, reason="", headline=interval, noise_floor=0.01),
    )  # fmt: skip
    return replace(done, **changes)


def test_a_forecast_is_scored_by_the_log_of_the_ratio() -> None:
    row = scored(measured(2.0, 1.5))
    assert row is not None
    assert row.log_error == pytest.approx(math.log(0.75)) and not row.is_inside
    assert scored_text(row) == "forecast x2, measured x1.5 [1.45, 1.55]: 0.75 of it"
    inside = scored(measured(1.52, 1.5))
    assert inside is not None and inside.is_inside


@pytest.mark.parametrize(
    "unscored",
    [
        measured(1.0, 1.3),
        measured(2.0, 1.3, verdict=record(Outcome.REJECTED, refusal("accuracy")).verdict),
        measured(2.0, 1.3, decision=None),
        measured(2.0, 1.3, proposal=None),
        measured(2.0, 0.0),
    ],
)
def test_what_tests_no_forecast_is_not_scored(unscored: Round) -> None:
    """Nothing forecast, refused, not measured, no proposal, no ratio."""
    assert scored(unscored) is None


def test_below_five_there_are_no_figures() -> None:
    few = calibration_of([measured(2.0, 1.5)] * 4)
    assert (len(few.forecasts), few.judgement, few.bias, few.mean_abs_log_error, few.coverage) == (
        4, "too few", None, None, None,
    )  # fmt: skip
    assert calibration_text(few) == "4 measured, too few to judge forecasts by (from 5 on)"
    assert calibration_text(calibration_of([])) == ""


def test_bias_error_and_coverage() -> None:
    high = calibration_of([measured(2.0, 1.0), measured(2.0, 1.1), *[measured(1.5, 0.8)] * 3])
    expected = math.exp((math.log(0.5) + math.log(0.55) + 3 * math.log(0.8 / 1.5)) / 5)
    assert high.bias == pytest.approx(expected) and high.judgement == "forecasts too high"
    assert high.coverage == 0.0 and high.mean_abs_log_error == pytest.approx(-math.log(expected))
    assert calibration_text(high) == (
        f"5 measured: on average {expected:.2f} of the forecast (forecasts too high), off by a factor of "
        f"{1 / expected:.2f}, 0% inside the measured interval"
    )
    low = calibration_of([measured(1.1, ratio) for ratio in (1.5, 1.6, 1.4, 1.55, 1.5)])
    assert low.judgement == "forecasts too low"
    even = calibration_of([measured(1.5, ratio) for ratio in (1.5, 1.2, 1.9, 1.52, 1.48)])
    assert even.judgement == "no bias seen" and even.coverage == pytest.approx(0.6)
