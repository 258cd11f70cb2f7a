"""The control arm: any untried thing that may be done, all with the same probability.

A policy that does not beat this one has learned nothing from spans and expected factors.
"""

from __future__ import annotations

import random

from vibeserve.agents.moves import (
    MAX_FAILURES,
    adoption,
    applicable_cards,
    gain_of,
    is_untried,
    num_failures,
    single_setting,
    untried_settings,
)
from vibeserve.agents.port import PlanningState
from vibeserve.core.nouns import Proposal


class RandomPlanner:
    """Draws among every adoptable card and every single changed parameter of the incumbent.

    The draw depends on the seed and the number of rounds so far alone, so a search that is interrupted goes on as it
    would have.
    """

    why_stopped = ""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def propose(self, state: PlanningState) -> Proposal | None:
        """One of the choices; None when nothing is left that was not tried."""
        choices = list_choices(state)
        draw = random.Random(f"{self._seed}/{state.round_number}")
        return draw.choice(choices) if choices else None


def list_choices(state: PlanningState) -> list[Proposal]:
    """Every untried adoption and setting, in a fixed order. Cards that failed twice are abandoned, as under any
    policy."""
    adoptions = [
        adoption(skill, gain_of(card, state.shares), state)
        for card, skill in applicable_cards(state)
        if num_failures(card, state.records) < MAX_FAILURES
    ]
    untried = [proposal for proposal in adoptions if is_untried(proposal, state)]
    return [*untried, *(single_setting(state, parameters) for parameters in untried_settings(state))]
