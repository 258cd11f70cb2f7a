"""The embedded agent: planner, implementer and judge that work from the skills' cards, without any model.

The planner splits a request's wall time by spans, looks for the card that relieves the largest share by its expected
factor (Amdahl 1967: gain = 1 / (1 - share + share / factor)), and after the last card tunes the incumbent's parameters
by successive halving (Jamieson and Talwalkar 2016). A refusal abandons the (card, parameters) pair, two abandon the card.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vibeserve.agents.port import Parameters, PlanningState
from vibeserve.core.documents import canonical_json
from vibeserve.core.nouns import Outcome, Proposal, Refusal, Round
from vibeserve.skills import Card, Skill, applicable, assemble, declared_parameters, resolve

MAX_VARIANTS = 6
MAX_FAILURES = 2
TUNING_CARD = "tuning"


class PlaybookPlanner:
    """Largest expected gain first; ties go by name."""

    def propose(self, state: PlanningState) -> Proposal | None:
        promising = [
            (_num_failures(card, state.records), -gain, card.name, skill)
            for card, skill in _cards(state.skills).values()
            if _is_applicable(card, state) and (gain := _gain(card, state.spans)) >= 1 + state.min_effect
        ]
        for num_failures, negative_gain, name, skill in sorted(promising, key=lambda entry: entry[:3]):
            proposal = _adoption(skill, -negative_gain, state)
            is_new = _key(proposal.parameters, proposal.components) not in _tried(state.records, card=name)
            if num_failures < MAX_FAILURES and is_new:
                return proposal
        return _tuning(state)


class PlaybookImplementer:
    """Assembles the proposal's components: a pure function of scaffold, components and parameters."""

    origin = ""

    def __init__(self, scaffold: Path, *, skills: Sequence[Skill]) -> None:
        self._scaffold = scaffold
        self._skills = {skill.name: skill for skill in skills}

    def implement(self, proposal: Proposal, *, workspace: Path) -> None:
        components = [self._skills[name] for name in proposal.components]
        assemble(self._scaffold, components, proposal.parameters, workspace)

    def revise(self, proposal: Proposal, *, refusals: Sequence[Refusal], state: PlanningState) -> Proposal | None:
        """The same card with its next untried parameter value, in the card's order; a card without one is given up."""
        skill = self._skills.get(proposal.card)
        if skill is None or skill.card is None:
            return None
        tried = _tried(state.records, card=proposal.card) | {_key(proposal.parameters, proposal.components)}
        for name, parameter in sorted(skill.card.parameters.items()):
            for value in parameter.tune:
                parameters = {**proposal.parameters, name: value}
                if _key(parameters, proposal.components) not in tried:
                    title = f"{proposal.title}, {name}={value}"
                    return replace(proposal, proposal_id=f"{proposal.proposal_id}b", title=title, parameters=parameters)
        return None


class PlaybookJudge:
    """Adds nothing to the gates' verdict."""

    def review(self, workspace: Path, *, proposal: Proposal) -> list[Refusal]:
        return []


def _gain(card: Card, spans: dict[str, float]) -> float:
    share = min(1.0, sum(spans.get(span, 0.0) for span in card.relieves))
    return 1 / (1 - share + share / card.expected_factor)


def _key(parameters: Parameters, components: Sequence[str]) -> str:
    return canonical_json({"parameters": dict(parameters), "components": sorted(components)})


def _tried(records: Sequence[Round], *, card: str) -> set[str]:
    """What was offered for `card` before, whatever came of it. An infrastructure failure says nothing about it."""
    offered = (r.proposal for r in records if r.proposal and r.proposal.card == card and r.outcome is not Outcome.INFRA)
    return {_key(parameters, p.components) for p in offered for parameters in (p.parameters, *p.variants)}


def _num_failures(card: Card, records: Sequence[Round]) -> int:
    lost = (Outcome.REJECTED, Outcome.CRASHED, Outcome.TIMED_OUT)
    return sum(1 for r in records if r.proposal and r.proposal.card == card.name and r.outcome in lost)


def _cards(skills: Sequence[Skill]) -> dict[str, tuple[Card, Skill]]:
    """Components by name; skills that are knowledge only have no card."""
    return {skill.name: (skill.card, skill) for skill in skills if skill.card is not None}


def _is_applicable(card: Card, state: PlanningState) -> bool:
    is_adopted = card.name in state.incumbent.components
    return not is_adopted and applicable(card, facts=state.facts) is None


def _adoption(skill: Skill, gain: float, state: PlanningState) -> Proposal:
    card = skill.card
    assert card is not None
    kept, dropped = _compatible(card, state)
    components = resolve([*kept, card.name], state.skills)
    declared = declared_parameters(state.scaffold, components)
    # what the incumbent was tuned to stays; what the card declares itself starts at the card's default
    tuned = {name: value for name, value in state.incumbent.parameters.items() if name not in card.parameters}
    parameters = {name: tuned.get(name, parameter.default) for name, parameter in declared.items()}
    share = sum(state.spans.get(span, 0.0) for span in card.relieves)
    instead = f" instead of {', '.join(dropped)}" if dropped else ""
    return Proposal(
        proposal_id=f"p{len(state.records):03d}-{card.name}",
        title=f"adopt {card.name}{instead}",
        hypothesis=f"{card.name} relieves {', '.join(card.relieves)}, {share:.0%} of the requests' wall time",
        mechanism=skill.description,
        activation_evidence=f"the spans {', '.join(card.relieves)} shrink in the candidate's profile against the incumbent's",
        falsification="the interval of the paired headline ratio includes 1, or a gate refuses",
        forecast_ratio=round(gain, 3),
        components=tuple(sorted(component.name for component in components)),
        parameters=parameters,
        skills=(skill.name,),
        card=card.name,
    )


def _compatible(card: Card, state: PlanningState) -> tuple[list[str], list[str]]:
    """The incumbent's components split into those that go with `card` and those that it replaces."""
    kept: list[str] = []
    dropped: list[str] = []
    cards = _cards(state.skills)
    for name in state.incumbent.components:
        other, _ = cards[name]
        is_related = name in _closure(card.name, state) or card.name in _closure(name, state)
        shares_file = bool(set(other.files.values()) & set(card.files.values()))
        is_rival = shares_file or card.name in other.conflicts or name in card.conflicts
        (dropped if is_rival and not is_related else kept).append(name)
    # what extends a replaced component goes with it
    gone = [name for name in kept if _closure(name, state) & set(dropped)]
    return [name for name in kept if name not in gone], sorted([*dropped, *gone])


def _closure(name: str, state: PlanningState) -> set[str]:
    return {component.name for component in resolve([name], state.skills)}


def _tuning(state: PlanningState) -> Proposal | None:
    """One round over the incumbent's tunable values, each changed alone, halved successively by the evaluator."""
    cards = _cards(state.skills)
    tried = _tried(state.records, card=TUNING_CARD)
    components = state.incumbent.components
    variants: list[dict[str, float | int | str | bool]] = []
    for name in components:
        for parameter_name, parameter in sorted(cards[name][0].parameters.items()):
            for value in parameter.tune:
                changed = {**state.incumbent.parameters, parameter_name: value}
                is_new = (
                    value != state.incumbent.parameters.get(parameter_name) and _key(changed, components) not in tried
                )
                if is_new and changed not in variants:
                    variants.append(changed)
    if not variants:
        return None
    variants = variants[:MAX_VARIANTS]
    return Proposal(
        proposal_id=f"p{len(state.records):03d}-{TUNING_CARD}",
        title=f"tune the incumbent's parameters ({len(variants)} settings)",
        hypothesis="another value of one parameter suits this machine and load better than the card's default",
        mechanism="successive halving: every setting in short windows, the better half goes on with longer ones",
        activation_evidence="runtime/assembly.json of the offered candidate differs in one parameter",
        falsification="the interval of the paired headline ratio includes 1, or a gate refuses",
        forecast_ratio=1.05,
        components=components,
        parameters=variants[0],
        card=TUNING_CARD,
        variants=tuple(variants),
    )
