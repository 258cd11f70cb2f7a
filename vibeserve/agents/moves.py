"""What a search over cards may do next, and what it has tried: shared by every policy that needs no model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from vibeserve.agents.port import Parameters, PlanningState
from vibeserve.core.documents import canonical_json
from vibeserve.core.nouns import Outcome, Proposal, Round
from vibeserve.errors import SpecError
from vibeserve.planning import assembly_key, keys_of, like_abandoned
from vibeserve.skills import Card, Parameter, Skill, applicable, declared_parameters, pinned_values, resolve
from vibeserve.skills.resolve import parameter_values

MAX_FAILURES = 2
"""refused or lost attempts after which a card is abandoned"""
TUNING_CARD = "tuning"


def gain_of(card: Card, spans: dict[str, float]) -> float:
    """Expected factor of a request's wall time by Amdahl's law (1967): 1 / (1 - share + share / factor)."""
    share = min(1.0, sum(spans.get(span, 0.0) for span in card.relieves))
    return 1 / (1 - share + share / card.expected_factor)


def key_of(parameters: Parameters, components: Sequence[str]) -> str:
    """One text for one assembly."""
    return canonical_json({"parameters": dict(parameters), "components": sorted(components)})


def tried(records: Sequence[Round], *, card: str) -> set[str]:
    """What was offered for `card` before, whatever came of it. An infrastructure failure says nothing about it."""
    offered = [proposal for proposal, outcome in _offers(records, card=card) if outcome is not Outcome.INFRA]
    return {key_of(parameters, p.components) for p in offered for parameters in (p.parameters, *p.variants)}


def num_failures(card: Card, records: Sequence[Round]) -> int:
    lost = (Outcome.REJECTED, Outcome.CRASHED, Outcome.TIMED_OUT)
    return sum(1 for _, outcome in _offers(records, card=card.name) if outcome in lost)


def _offers(records: Sequence[Round], *, card: str) -> Iterator[tuple[Proposal, Outcome]]:
    """Every attempt at `card` with what came of it, those that another one of their round followed included."""
    for record in records:
        if record.proposal is not None and record.proposal.card == card:
            yield from ((attempt.proposal, attempt.outcome) for attempt in record.refused_attempts)
            yield record.proposal, record.outcome


def applicable_cards(state: PlanningState) -> list[tuple[Card, Skill]]:
    """Components that may be adopted now, by name; skills that are knowledge only have no card."""
    cards = [(skill.card, skill) for skill in state.skills if skill.card is not None]
    return sorted((pair for pair in cards if _is_applicable(pair[0], state)), key=lambda pair: pair[0].name)


def _is_applicable(card: Card, state: PlanningState) -> bool:
    """Not adopted yet, and neither the card nor anything that comes along with it is out of place here."""
    if card.name in state.incumbent.components or _is_avoided(card, state):
        return False
    needed = [skill.card for skill in resolve([card.name], state.skills) if skill.card is not None]
    is_banned = state.constraints.bans([each.name for each in needed], incumbent=state.incumbent.components)
    is_in_place = all(applicable(each, facts=state.facts) is None for each in needed)
    return is_in_place and not is_banned and not _contradicts_pin(needed, state)


def _is_avoided(card: Card, state: PlanningState) -> bool:
    """It relieves nothing but what the cards of a plateau relieve."""
    lost = [skill.card for skill in state.skills if skill.card is not None and skill.name in state.avoided]
    return bool(lost) and set(card.relieves) <= {span for each in lost for span in each.relieves}


def _contradicts_pin(cards: Sequence[Card], state: PlanningState) -> bool:
    """One of the cards declares a pinned or constrained parameter with bounds that leave out all that it may be."""
    declared = {name: parameter for card in cards for name, parameter in card.parameters.items()}
    moved = [name for name, pin in state.pins.items() if name in declared and declared[name].problem(pin) is not None]
    ruled = state.constraints
    return bool(moved) or any(not ruled.possible(name, declared[name]) for name in ruled.allowed if name in declared)


def is_untried(proposal: Proposal, state: PlanningState) -> bool:
    """Neither offered for its card before, nor given up, whoever gave it up."""
    if key_of(proposal.parameters, proposal.components) in tried(state.records, card=proposal.card):
        return False
    incumbent = (state.incumbent.components, state.incumbent.parameters)
    keys = keys_of(proposal, incumbent=incumbent, scaffold=state.scaffold, skills=state.skills)
    if set(keys) & _keys_elsewhere(state):
        return False
    return like_abandoned(proposal, keys=keys, backlog=state.backlog) is None


def _keys_elsewhere(state: PlanningState) -> set[str]:
    """Of every assembly that was tried, or is about to be, upon another checkpoint."""
    incumbent = (state.incumbent.components, state.incumbent.parameters)
    return {
        key
        for proposal in state.elsewhere
        for key in keys_of(proposal, incumbent=incumbent, scaffold=state.scaffold, skills=state.skills)
    }


def adoption(skill: Skill, gain: float, state: PlanningState) -> Proposal:
    """Add a component, with what it extends and without what cannot be combined with it."""
    card = skill.card
    assert card is not None
    kept, dropped = _compatible(card, state)
    components = resolve([*kept, card.name], state.skills)
    share = sum(state.shares.get(span, 0.0) for span in card.relieves)
    instead = f" instead of {', '.join(dropped)}" if dropped else ""
    return Proposal(
        proposal_id=f"p{state.round_number:03d}-{card.name}",
        title=f"adopt {card.name}{instead}",
        hypothesis=f"{card.name} relieves {', '.join(card.relieves)}, {share:.0%} of the requests' wall time",
        mechanism=skill.description,
        activation_evidence=_evidence_of(card),
        falsification="the interval of the paired headline ratio includes 1, or a gate refuses",
        forecast_ratio=round(gain, 3),
        components=tuple(sorted(component.name for component in components)),
        parameters=_retained_parameters(components, state),
        skills=(skill.name,),
        card=card.name,
    )


def _evidence_of(card: Card) -> str:
    """What the framework's profiler can see: the modules that the component brings run."""
    modules = [
        f"`{path}`" for path in sorted(card.files.values()) if path.endswith(".py") and path.startswith("runtime/")
    ]
    return f"functions of {', '.join(modules[:4]) or 'the component'} run; {', '.join(card.relieves)} shrink"


def _retained_parameters(components: Sequence[Skill], state: PlanningState) -> dict[str, float | int | str | bool]:
    """What the incumbent was tuned to stays, as far as it is still allowed; what is new starts at its default, what is
    constrained at a value that is allowed, and what is pinned at its pin."""
    added = [skill.card for skill in components if skill.card and skill.name not in state.incumbent.components]
    fresh = {name for card in added for name in card.parameters}
    declared = declared_parameters(state.scaffold, components)
    values: dict[str, float | int | str | bool] = {}
    for name, parameter in declared.items():
        value = state.incumbent.parameters.get(name, parameter.default)
        is_kept = name not in fresh and parameter.problem(value) is None
        values[name] = value if is_kept else parameter.default
    return state.constraints.settled(declared, values) | pinned_values(declared, state.pins)


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


def untried_settings(state: PlanningState) -> list[dict[str, float | int | str | bool]]:
    """The incumbent's parameters with one value changed, by every declaration that holds in its assembly; pinned ones
    are left alone, and so are values that are ruled out or were given up."""
    components = state.incumbent.components
    declared: dict[str, Parameter] = declared_parameters(state.scaffold, resolve(components, state.skills))
    pins = pinned_values(declared, state.pins)
    current = {**state.constraints.settled(declared, state.incumbent.parameters), **pins}
    if TUNING_CARD in state.avoided:
        return []
    known = tried(state.records, card=TUNING_CARD)
    abandoned = state.backlog.abandoned_keys | _keys_elsewhere(state)
    settings: list[dict[str, float | int | str | bool]] = []
    for name, parameter in sorted(declared.items()):
        for value in () if name in pins else parameter.tune:
            changed = {**current, name: value}
            is_same = value == current.get(name, parameter.default) or not state.constraints.permits(name, value)
            if is_same or key_of(changed, components) in known:
                continue
            if not abandoned or assembly_key(components, parameter_values(declared, changed)) not in abandoned:
                settings.append(changed)
    return settings


def tuning(state: PlanningState, variants: Sequence[dict[str, float | int | str | bool]]) -> Proposal:
    """One round over several settings of the incumbent's parameters, halved successively by the evaluator."""
    return Proposal(
        proposal_id=f"p{state.round_number:03d}-{TUNING_CARD}",
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


def single_setting(state: PlanningState, parameters: dict[str, float | int | str | bool]) -> Proposal:
    """Offer one setting as it is. Nothing is known of it, so nothing is forecast."""
    before = state.incumbent.parameters
    changed = [f"{name}={value}" for name, value in parameters.items() if before.get(name) != value]
    return replace(
        tuning(state, [parameters]), title=f"set {', '.join(changed)}", mechanism="one parameter has another value",
        forecast_ratio=1.0, variants=(),
    )  # fmt: skip
