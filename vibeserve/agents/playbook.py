"""The embedded agent: planner, implementer and judge that work from the skills' cards, without any model.

The planner splits a request's wall time by spans, looks for the card that relieves the largest share by its expected
factor (Amdahl 1967: gain = 1 / (1 - share + share / factor)), and after the last card tunes the incumbent's parameters
by successive halving (Jamieson and Talwalkar 2016). A refusal abandons the (card, parameters) pair, two abandon the
card.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from vibeserve.agents.port import Parameters, PlanningState
from vibeserve.core.documents import canonical_json
from vibeserve.core.nouns import Outcome, Proposal, Refusal, Round
from vibeserve.errors import SpecError
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
    offered = [proposal for proposal, outcome in _offers(records, card=card) if outcome is not Outcome.INFRA]
    return {_key(parameters, p.components) for p in offered for parameters in (p.parameters, *p.variants)}


def _num_failures(card: Card, records: Sequence[Round]) -> int:
    lost = (Outcome.REJECTED, Outcome.CRASHED, Outcome.TIMED_OUT)
    return sum(1 for _, outcome in _offers(records, card=card.name) if outcome in lost)


def _offers(records: Sequence[Round], *, card: str) -> Iterator[tuple[Proposal, Outcome]]:
    """Every attempt at `card` with what came of it, those that another one of their round followed included."""
    for record in records:
        if record.proposal is not None and record.proposal.card == card:
            yield from ((attempt.proposal, attempt.outcome) for attempt in record.refused_attempts)
            yield record.proposal, record.outcome


def _cards(skills: Sequence[Skill]) -> dict[str, tuple[Card, Skill]]:
    """Components by name; skills that are knowledge only have no card."""
    return {skill.name: (skill.card, skill) for skill in skills if skill.card is not None}


def _is_applicable(card: Card, state: PlanningState) -> bool:
    """Not adopted yet, and neither the card nor anything that comes along with it is out of place here."""
    is_adopted = card.name in state.incumbent.components
    needed = [skill.card for skill in resolve([card.name], state.skills) if skill.card is not None]
    return not is_adopted and all(applicable(each, facts=state.facts) is None for each in needed)


def _adoption(skill: Skill, gain: float, state: PlanningState) -> Proposal:
    card = skill.card
    assert card is not None
    kept, dropped = _compatible(card, state)
    components = resolve([*kept, card.name], state.skills)
    parameters = _retained_parameters(components, state)
    share = sum(state.spans.get(span, 0.0) for span in card.relieves)
    instead = f" instead of {', '.join(dropped)}" if dropped else ""
    return Proposal(
        proposal_id=f"p{len(state.records):03d}-{card.name}",
        title=f"adopt {card.name}{instead}",
        hypothesis=f"{card.name} relieves {', '.join(card.relieves)}, {share:.0%} of the requests' wall time",
        mechanism=skill.description,
        activation_evidence=f"the spans {', '.join(card.relieves)} shrink in the candidate's profile",
        falsification="the interval of the paired headline ratio includes 1, or a gate refuses",
        forecast_ratio=round(gain, 3),
        components=tuple(sorted(component.name for component in components)),
        parameters=parameters,
        skills=(skill.name,),
        card=card.name,
    )


def _retained_parameters(components: Sequence[Skill], state: PlanningState) -> dict[str, float | int | str | bool]:
    """What the incumbent was tuned to stays, as far as it is still allowed; what is new starts at its default."""
    added = [skill.card for skill in components if skill.card and skill.name not in state.incumbent.components]
    fresh = {name for card in added for name in card.parameters}
    values: dict[str, float | int | str | bool] = {}
    for name, parameter in declared_parameters(state.scaffold, components).items():
        value = state.incumbent.parameters.get(name, parameter.default)
        is_kept = name not in fresh and parameter.problem(value) is None
        values[name] = value if is_kept else parameter.default
    return values


def _compatible(card: Card, state: PlanningState) -> tuple[list[str], list[str]]:
    """The incumbent's components split into those that go with `card` and those that it, or what it extends, replaces.

    What extends a replaced component goes with it: it cannot be combined with `card` either.
    """
    kept = [name for name in state.incumbent.components if _is_combinable(name, card.name, state)]
    return kept, sorted(set(state.incumbent.components) - set(kept))


def _is_combinable(first: str, second: str, state: PlanningState) -> bool:
    try:
        resolve([first, second], state.skills)
    except SpecError:
        return False
    return True


def _tuning(state: PlanningState) -> Proposal | None:
    """One round over the incumbent's tunable values, each changed alone, halved successively by the evaluator."""
    variants = _untried_variants(state)[:MAX_VARIANTS]
    if not variants:
        return None
    return Proposal(
        proposal_id=f"p{len(state.records):03d}-{TUNING_CARD}",
        title=f"tune the incumbent's parameters ({len(variants)} settings)",
        hypothesis="another value of one parameter suits this machine and load better than the card's default",
        mechanism="successive halving: every setting in short windows, the better half goes on with longer ones",
        activation_evidence="runtime/assembly.json of the offered candidate differs in one parameter",
        falsification="the interval of the paired headline ratio includes 1, or a gate refuses",
        forecast_ratio=1.05,
        components=state.incumbent.components,
        parameters=variants[0],
        card=TUNING_CARD,
        variants=tuple(variants),
    )


def _untried_variants(state: PlanningState) -> list[dict[str, float | int | str | bool]]:
    """The incumbent's parameters with one value changed, by every declaration that holds in its assembly."""
    current, components = state.incumbent.parameters, state.incumbent.components
    tried = _tried(state.records, card=TUNING_CARD)
    declared = declared_parameters(state.scaffold, resolve(components, state.skills))
    changes = ((name, value) for name, parameter in sorted(declared.items()) for value in parameter.tune)
    variants: list[dict[str, float | int | str | bool]] = []
    for name, value in changes:
        changed = {**current, name: value}
        if value != current.get(name, declared[name].default) and _key(changed, components) not in tried:
            variants.append(changed)
    return variants
