"""The embedded agent: planner, implementer and judge that work from the skills' cards, without any model.

The planner splits a request's wall time by spans, as the framework's profile of the incumbent corrects them, looks for
the card that relieves the largest share by its expected factor (Amdahl 1967: gain = 1 / (1 - share + share / factor)),
and after the last card tunes the incumbent's parameters by successive halving (Jamieson and Talwalkar 2016). A refusal
abandons the (card, parameters) pair, two abandon the card.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vibeserve.agents.moves import (
    MAX_FAILURES,
    adoption,
    applicable_cards,
    gain_of,
    is_untried,
    key_of,
    num_failures,
    tried,
    tuning,
    untried_settings,
)
from vibeserve.agents.port import Explanation, Implementation, PlanningState, Review, Reviewed
from vibeserve.core.nouns import Proposal, Refusal
from vibeserve.skills import Skill, assemble

MAX_VARIANTS = 6


class PlaybookPlanner:
    """Largest expected gain first; ties go by name."""

    why_stopped = ""

    def propose(self, state: PlanningState) -> Proposal | None:
        promising = [
            (num_failures(card, state.records), -gain, card.name, skill)
            for card, skill in applicable_cards(state)
            if (gain := gain_of(card, state.shares)) >= 1 + state.min_effect
        ]
        for failures, negative_gain, _, skill in sorted(promising, key=lambda entry: entry[:3]):
            proposal = adoption(skill, -negative_gain, state)
            if failures < MAX_FAILURES and is_untried(proposal, state):
                return proposal
        variants = untried_settings(state)[:MAX_VARIANTS]
        return tuning(state, variants) if variants else None


class PlaybookImplementer:
    """Assembles the proposal's components: a pure function of scaffold, components and parameters."""

    origin = ""

    def __init__(self, scaffold: Path, *, skills: Sequence[Skill]) -> None:
        self._scaffold = scaffold
        self._skills = {skill.name: skill for skill in skills}

    def implement(self, proposal: Proposal, given: Implementation) -> None:
        components = [self._skills[name] for name in proposal.components]
        assemble(self._scaffold, components, proposal.parameters, given.workspace)

    def revise(self, proposal: Proposal, *, refusals: Sequence[Refusal], state: PlanningState) -> Proposal | None:
        """The same card with its next untried parameter value, in the card's order; a card without one is given up."""
        skill = self._skills.get(proposal.card)
        if skill is None or skill.card is None:
            return None
        known = tried(state.records, card=proposal.card) | {key_of(proposal.parameters, proposal.components)}
        for name, parameter in sorted(skill.card.parameters.items()):
            for value in () if name in state.pins else parameter.tune:
                parameters = {**proposal.parameters, name: value}
                if key_of(parameters, proposal.components) not in known and state.constraints.permits(name, value):
                    title = f"{proposal.title}, {name}={value}"
                    return replace(proposal, proposal_id=f"{proposal.proposal_id}b", title=title, parameters=parameters)
        return None


class PlaybookJudge:
    """Adds nothing to the gates' verdict."""

    def review(self, review: Review) -> Reviewed:
        return Reviewed()


class PlaybookEvaluator:
    """Spans and profile say all that the playbook reads."""

    def explain(self, explanation: Explanation) -> str:
        return ""
