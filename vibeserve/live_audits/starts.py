"""Start-up: timed, capped and reported, and no prompt exists before the server is ready (class 35)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vibeserve.live_audits.nouns import Audited, audited

NAME = "start_up"
SLOW, EARLY = "slow_start", "early_prompt"


@dataclass(frozen=True, kw_only=True)
class Start:
    """One start. `ready_at_s` and `drawn_at_s` are readings of one monotonic clock."""

    startup_s: float
    """from the wall's start to the first readiness"""
    ready_at_s: float
    drawn_at_s: float
    """when the seed of its first prompts was drawn"""


def judge_starts(starts: Sequence[Start], *, max_s: float) -> Audited:
    """Pure. Refuses `slow_start` above `max_s` (`evaluation.startup_max_s`), `early_prompt` for a seed from before
    readiness; without any start both are unknown, which refuses."""
    if not starts:
        return audited(NAME, text="", figures={}, refused={SLOW: "no start was timed"})
    slowest_s = max(start.startup_s for start in starts)
    refused = {}
    if not slowest_s <= max_s:
        refused[SLOW] = f"a start took {slowest_s:.1f} s, at most {max_s:g} s is allowed (evaluation.startup_max_s)"
    num_early = sum(not start.ready_at_s <= start.drawn_at_s for start in starts)
    if num_early:
        refused[EARLY] = f"prompts of {num_early} of {len(starts)} starts were drawn before the server was ready"
    text = (
        f"{len(starts)} starts, the slowest took {slowest_s:.1f} s of {max_s:g} s; prompts were drawn after readiness"
    )
    figures = {"num_starts": len(starts), "slowest_s": slowest_s, "max_s": max_s}
    return audited(NAME, text=text, figures=figures, refused=refused)
