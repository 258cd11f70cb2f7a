"""The number that the search chose the winner by, beside the certified one."""

from __future__ import annotations

import math

from vibeserve.certification import Certification
from vibeserve.core.manifest import MetricResult, Selection
from vibeserve.core.nouns import Outcome, Role
from vibeserve.spec import ClockKind, Spec
from vibeserve.synthesis import Search


def selection_of(search: Search, result: Certification, *, spec: Spec) -> Selection | None:
    """The headline metric's median in the round that made the winner the incumbent, against what certification found.

    None where either is missing, and under a fake clock, whose numbers say nothing about the machine.
    """
    headline = next((metric for metric in result.metrics if metric.role is Role.HEADLINE), None)
    chosen = [entry.record for entry in search.entries if entry.record.outcome in (Outcome.ACCEPTED, Outcome.BASELINE)]
    if headline is None or not chosen or spec.evaluation.clock is ClockKind.fake:
        return None
    selected = chosen[-1].metrics.get("candidate", {}).get(headline.name, math.nan)
    if not (math.isfinite(selected) and selected > 0 and headline.candidate > 0):
        return None
    return Selection(
        metric=headline.name, unit=headline.unit, load=headline.load, selected=selected, certified=headline.candidate,
        ratio=_ratio(headline, selected=selected),
    )  # fmt: skip


def _ratio(headline: MetricResult, *, selected: float) -> float:
    better = headline.candidate / selected
    return better if headline.direction.value == "max" else 1 / better
