"""How long the rest of a run takes, from what this very run measured; unknown, with the reason, where it measured
nothing of the kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from vibeserve.status.rounds import RoundRow

NO_ROUND = "no round of this run has ended yet"
NO_BUDGET = "the journal does not say how many rounds the run may take"
NOT_CERTIFIED = "certification has not run in this run, so nothing of it was measured"


@dataclass(frozen=True, kw_only=True)
class Eta:
    """Seconds of work that are left. None is unknown; `why_unknown` says of what, and why."""

    rounds_left: int | None = None
    """at most: patience, the wall time and the planner may end the search earlier"""
    round_s: float | None = None
    """median of the finished rounds after round 0"""
    search_s: float | None = None
    """of the search, at most"""
    certify_s: float | None = None
    total_s: float | None = None
    why_unknown: str = ""

    def line(self) -> str:
        if self.total_s is not None:
            return f"about {_duration(self.total_s)}"
        if self.search_s is None or self.round_s is None:
            return f"unknown: {self.why_unknown}"
        search = f"search at most {_duration(self.search_s)} ({self.rounds_left} rounds of {_duration(self.round_s)})"
        return f"{search}; the rest is unknown: {self.why_unknown}"


def eta_of(
    rows: Sequence[RoundRow], *, declared: Mapping[str, Any], steered: Mapping[str, float], is_searching: bool,
    certified_s: float | None, is_certified: bool,
) -> Eta:  # fmt: skip
    """`declared`: the run's budget as it was opened; `steered`: what people changed of it. `certified_s`: seconds of
    an earlier certification of this run, which is done again where a step before it changed."""
    if is_certified:
        return Eta(rounds_left=0, search_s=0.0, certify_s=0.0, total_s=0.0)
    if not is_searching:
        why = "" if certified_s is not None else NOT_CERTIFIED
        return Eta(rounds_left=0, search_s=0.0, certify_s=certified_s, total_s=certified_s, why_unknown=why)
    tried = [row.seconds for row in rows if row.number > 0 and row.seconds > 0]
    rounds = steered.get("rounds", declared.get("rounds"))
    left = None if rounds is None else max(0, int(rounds) - max(0, len(rows) - 1))
    round_s = median(tried) if tried else None
    search_s = None if left is None or round_s is None else left * round_s
    total_s = None if search_s is None or certified_s is None else search_s + certified_s
    reasons = [NO_BUDGET if left is None else "", NO_ROUND if round_s is None else ""]
    reasons.append(NOT_CERTIFIED if certified_s is None else "")
    return Eta(
        rounds_left=left, round_s=round_s, search_s=search_s, certify_s=certified_s, total_s=total_s,
        why_unknown="; ".join(filter(None, reasons)),
    )  # fmt: skip


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
