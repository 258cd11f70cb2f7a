"""Forecasts scored against what was measured: how far a planner's numbers can be trusted."""

from __future__ import annotations

import math
from collections.abc import Iterable
from statistics import fmean, stdev

from vibeserve.core.manifest import Calibration, ScoredForecast
from vibeserve.core.nouns import Round

MIN_FORECASTS = 5
"""below that the figures say nothing, and are not given"""
NUM_DEVIATIONS = 2.0
"""standard errors of the mean log error by which a bias is told from chance"""


def scored(record: Round) -> ScoredForecast | None:
    """The forecast of a round beside its paired headline ratio.

    None where nothing was forecast (a factor of 1), nothing was measured, or a gate refused the candidate: the speed of
    wrong output tests no hypothesis. Nor does a round in which nothing of what was proposed was seen to run.
    """
    headline = record.decision.headline if record.decision is not None else None
    if record.proposal is None or headline is None or record.is_refused or record.is_unactivated:
        return None
    forecast = record.proposal.forecast_ratio
    if forecast == 1.0 or min(forecast, headline.ratio) <= 0:
        return None
    return ScoredForecast(
        round=record.number, forecast=forecast, measured=headline.ratio, ci_low=headline.ci_low,
        ci_high=headline.ci_high, log_error=math.log(headline.ratio / forecast),
        is_inside=headline.ci_low <= forecast <= headline.ci_high,
    )  # fmt: skip


def calibration_of(records: Iterable[Round]) -> Calibration:
    """Bias, error and coverage over the measured rounds; without figures where there are too few."""
    rows = tuple(row for record in records if (row := scored(record)) is not None)
    if len(rows) < MIN_FORECASTS:
        return Calibration(forecasts=rows, judgement="too few")
    errors = [row.log_error for row in rows]
    return Calibration(
        forecasts=rows, judgement=_judgement(errors), bias=math.exp(fmean(errors)),
        mean_abs_log_error=fmean(map(abs, errors)), coverage=fmean(row.is_inside for row in rows),
    )  # fmt: skip


def _judgement(errors: list[float]) -> str:
    mean, error = fmean(errors), stdev(errors) / math.sqrt(len(errors))
    if abs(mean) <= NUM_DEVIATIONS * error:
        return "no bias seen"
    return "forecasts too high" if mean < 0 else "forecasts too low"


def scored_text(row: ScoredForecast) -> str:
    """`forecast x1.8, measured x1.35 [1.3, 1.4]: 0.75 of it`"""
    return (
        f"forecast x{row.forecast:.3g}, measured x{row.measured:.3g} [{row.ci_low:.3g}, {row.ci_high:.3g}]: "
        f"{math.exp(row.log_error):.2f} of it"
    )


def calibration_text(found: Calibration) -> str:
    """One line."""
    num = len(found.forecasts)
    if found.bias is None or found.mean_abs_log_error is None or found.coverage is None:
        return f"{num} measured, too few to judge forecasts by (from {MIN_FORECASTS} on)" if num else ""
    return (
        f"{num} measured: on average {found.bias:.2f} of the forecast ({found.judgement}), off by a factor of "
        f"{math.exp(found.mean_abs_log_error):.2f}, {found.coverage:.0%} inside the measured interval"
    )
