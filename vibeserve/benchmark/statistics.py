"""Paired statistics: log-ratios, bootstrap intervals of their median, and the noise floor.

Percentile bootstrap of the median (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13). Pairs
from the same server start are not independent, so with `groups` whole starts are resampled (Davison and Hinkley,
Bootstrap Methods and their Application, 1997, section 3.8, strategy 1). Deterministic by seed.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

from vibeserve.core.nouns import Metric, RatioInterval, Refusal
from vibeserve.errors import RefusedError

if TYPE_CHECKING:
    import numpy as np

CONFIDENCE = 0.95
NUM_RESAMPLES = 2000
MIN_PAIRS = 3


def paired_log_ratios(
    candidate: Sequence[Mapping[str, float]], incumbent: Sequence[Mapping[str, float]], *, metric: Metric
) -> list[float]:
    """log(candidate / incumbent) by pair, turned so that > 0 is better.

    RefusedError, reason class `missing_metric`, when a value is absent, not finite or not above 0, or when a window has
    no partner: a number that is not there is never a good one.
    """
    problems = []
    if len(candidate) != len(incumbent) or len(candidate) < MIN_PAIRS:
        problems.append(f"{len(candidate)} candidate and {len(incumbent)} incumbent windows; need {MIN_PAIRS} pairs")
    logs = []
    for pair, (ours, theirs) in enumerate(zip(candidate, incumbent, strict=False)):
        for side, window in (("candidate", ours), ("incumbent", theirs)):
            value = window.get(metric.name, math.nan)
            # a boolean is a number to Python, and no measurement
            if isinstance(value, bool) or not (math.isfinite(value) and value > 0):
                problems.append(f"pair {pair}: {side} has no usable {metric.name}: {window.get(metric.name)}")
        if not problems:
            logs.append(math.log(metric.ratio(ours[metric.name], against=theirs[metric.name])))
    if problems:
        reasons = [Refusal(gate="decision", reason_class="missing_metric", text=problem) for problem in problems]
        raise RefusedError("the pairs cannot be compared: " + "; ".join(problems), reasons=reasons)
    return logs


def self_log_ratios(windows: Sequence[Mapping[str, float]], *, metric: Metric) -> list[float]:
    """log-ratios of each window to the one before it, of one server: an A/A series that costs no further windows.

    The drift between neighbouring windows is in it, so it is not below what two servers of the same runtime would show.
    RefusedError as `paired_log_ratios`.
    """
    return paired_log_ratios(windows[1:], windows[:-1], metric=metric)


def paired_ratio(
    candidate: Sequence[Mapping[str, float]],
    incumbent: Sequence[Mapping[str, float]],
    *,
    metric: Metric,
    seed: int,
    num_resamples: int = NUM_RESAMPLES,
    groups: Sequence[Hashable] | None = None,
) -> RatioInterval:
    """exp(median of the paired log-ratios) with its 95% bootstrap interval. Window k of one side pairs with window k of
    the other; `groups[k]` names the server start of pair k. RefusedError as `paired_log_ratios`.
    """
    logs = paired_log_ratios(candidate, incumbent, metric=metric)
    return ratio_interval(logs, seed=seed, num_resamples=num_resamples, groups=groups)


def ratio_interval(
    log_ratios: Sequence[float],
    *,
    seed: int,
    num_resamples: int = NUM_RESAMPLES,
    groups: Sequence[Hashable] | None = None,
) -> RatioInterval:
    """The same from log-ratios that are there already."""
    import numpy as np

    values = np.asarray(log_ratios, dtype=np.float64)
    if groups is None:
        medians = _resampled_medians(values, num_draws=len(values), num_resamples=num_resamples, seed=seed)
    else:
        medians = _clustered_medians(values, groups, num_resamples=num_resamples, seed=seed)
    low, high = _interval(medians)
    return RatioInterval(
        ratio=math.exp(float(np.median(values))),
        ci_low=math.exp(low),
        ci_high=math.exp(high),
        num_pairs=len(values),
        values=tuple(math.exp(value) for value in log_ratios),
    )


def noise_floor(
    log_ratios: Sequence[float], *, seed: int, num_pairs: int | None = None, num_resamples: int = NUM_RESAMPLES
) -> float:
    """Half-width of the 95% bootstrap interval of the median A/A log-ratio at `num_pairs` pairs (default: as many as
    given).

    `log_ratios` come from the incumbent measured against itself on this machine, today. Raises ValueError below three
    pairs: no floor, no comparison.
    """
    import numpy as np

    values = np.asarray(log_ratios, dtype=np.float64)
    if len(values) < MIN_PAIRS or not np.isfinite(values).all():
        raise ValueError(f"a noise floor needs {MIN_PAIRS} or more finite A/A log-ratios, not {list(log_ratios)}")
    num_draws = len(values) if num_pairs is None else num_pairs
    low, high = _interval(_resampled_medians(values, num_draws=num_draws, num_resamples=num_resamples, seed=seed))
    return (high - low) / 2


def _resampled_medians(values: np.ndarray, *, num_draws: int, num_resamples: int, seed: int) -> np.ndarray:
    """[num_resamples] medians of `num_draws` draws with replacement."""
    import numpy as np

    draws = np.random.default_rng(seed).integers(0, len(values), size=(num_resamples, num_draws))
    medians: np.ndarray = np.median(values[draws], axis=1)
    return medians


def _clustered_medians(values: np.ndarray, groups: Sequence[Hashable], *, num_resamples: int, seed: int) -> np.ndarray:
    """[num_resamples] medians over whole groups drawn with replacement."""
    import numpy as np

    if len(groups) != len(values):
        raise ValueError(f"{len(groups)} groups for {len(values)} pairs")
    members: dict[Hashable, list[int]] = {}
    for position, group in enumerate(groups):
        members.setdefault(group, []).append(position)
    clusters = [values[positions] for positions in members.values()]
    if len(clusters) < 2:
        return _resampled_medians(values, num_draws=len(values), num_resamples=num_resamples, seed=seed)
    draws = np.random.default_rng(seed).integers(0, len(clusters), size=(num_resamples, len(clusters)))
    return np.array([np.median(np.concatenate([clusters[k] for k in draw])) for draw in draws])


def _interval(medians: np.ndarray) -> tuple[float, float]:
    import numpy as np

    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(medians, [tail, 100 - tail])
    return float(low), float(high)
