"""Whether the goals are met already, as far as a search can know: `search.stop_at_goal`.

A search measures candidates at the headline load, beside each other. So a bound in a metric's own unit can be held
against the incumbent's windows, and a ratio against the seed itself (the baseline `scaffold`) against the accepted
ratios; any other baseline is measured at certification alone, and a goal against it is never met before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from vibeserve.benchmark import paired_ratio
from vibeserve.core.nouns import Outcome
from vibeserve.errors import RefusedError
from vibeserve.rounds import Team
from vibeserve.spec import Goal, Spec
from vibeserve.synthesis.search import Search

SEED_BASELINE = "scaffold"


def why_goals_are_met(team: Team, search: Search) -> str:
    """Why the search may end; empty where a goal is missed, or cannot be known here."""
    goals = team.bench.plan.spec.goals
    lows = [_low(goal, team, search) for goal in goals]
    if not goals or not all(low is not None and low >= 1 for low in lows):
        return ""
    least = min(low for low in lows if low is not None)
    return f"goal: all {len(goals)} are met with the lower end of their intervals (the closest by x{least:.3f})"


def _low(goal: Goal, team: Team, search: Search) -> float | None:
    """Lower end of how many times the goal is met; None where that is not known."""
    if goal.load not in ("", team.headline_load):
        return None
    if goal.min_ratio is not None:
        is_known = goal.metric == team.headline and is_against_seed(goal, spec=team.bench.plan.spec)
        return _chain_low(search) / goal.min_ratio if is_known else None
    limit = _limit(goal)
    windows = _incumbents_windows(search)
    metric = team.bench.metrics[goal.metric]
    if limit is None or not windows:
        return None
    try:
        return paired_ratio(windows, [{metric.name: limit}] * len(windows), metric=metric, seed=0).ci_low
    except RefusedError:
        return None  # a window without a value, or too few of them


def is_against_seed(goal: Goal, *, spec: Spec) -> bool:
    """The goal compares with the seed alone: by its name, or by a class of which it is the only member."""
    members = [name for name, row in spec.baseline.items() if goal.against in (name, row.baseline_class.value)]
    return members == [SEED_BASELINE]


def _chain_low(search: Search) -> float:
    """Product of the lower ends of the accepted ratios: no candidate is below it if none is below its own."""
    accepted = [entry.record.decision for entry in search.entries if entry.record.outcome is Outcome.ACCEPTED]
    headlines = [decision.headline for decision in accepted if decision is not None]
    return math.prod(headline.ci_low for headline in headlines if headline is not None)


def _limit(goal: Goal) -> float | None:
    if goal.max_ms is not None:
        return goal.max_ms / 1000
    return goal.max_gib if goal.max_gib is not None else goal.min_per_s


def _incumbents_windows(search: Search) -> list[Mapping[str, Any]]:
    assert search.incumbent is not None
    name = search.incumbent.candidate.candidate_id
    entries = [each for each in search.entries if each.checkpoint is not None]
    measured = entries[-1].measurements or {}
    return list(measured.get(name, {}).get("windows", ()))
