"""A person's proposal: made complete, and checked before it is put in line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from vibeserve.agents import TUNING_CARD, PlanningState
from vibeserve.agents.schemas import proposal_of
from vibeserve.core.nouns import Proposal
from vibeserve.errors import SpecError
from vibeserve.planning import keys_of, like_abandoned, ruled_out
from vibeserve.skills import declared_parameters, pinned_values, resolve
from vibeserve.skills.resolve import parameter_values


def persons_proposal(document: dict[str, Any], *, number: int, state: PlanningState) -> Proposal:
    """The proposal of request `number` at the incumbent of `state`: with all that its components extend, the pinned
    parameters that it does not speak of, and the card that its gain is credited to. SpecError for components that are
    not there or cannot be combined."""
    proposal = proposal_of({"proposal": document}, proposal_id=f"s{number:03d}")
    if not proposal.components and not proposal.parameters:
        return proposal
    chosen = resolve(proposal.components, state.skills)
    components = tuple(sorted(skill.name for skill in chosen))
    pins = pinned_values(declared_parameters(state.scaffold, chosen), state.pins)
    added = sorted(set(components) - set(state.incumbent.components))
    return replace(
        proposal, components=components, parameters={**pins, **proposal.parameters},
        card="+".join(added) or TUNING_CARD,
    )  # fmt: skip


def problems_of(proposal: Proposal, *, state: PlanningState, is_assembling: bool) -> Iterator[str]:
    """Why it would not become a round, or not a fair one."""
    chosen = resolve(proposal.components, state.skills)
    declared = declared_parameters(state.scaffold, chosen)
    try:
        parameter_values(declared, proposal.parameters)
    except SpecError as error:
        yield from error.problems
    for name, pin in pinned_values(declared, state.pins).items():
        value = proposal.parameters.get(name, declared[name].default)
        if proposal.components and value != pin:
            yield f"parameter {name} is pinned to {pin}, proposed is {value}"
    refusals = ruled_out(
        proposal, constraints=state.constraints, incumbent=state.incumbent.components, scaffold=state.scaffold,
        skills=state.skills,
    )  # fmt: skip
    yield from (refusal.text for refusal in refusals)
    keys = keys_of_proposal(proposal, state)
    if is_assembling and not keys:
        yield "it assembles the incumbent as it is, and the playbook writes no code"
    found = like_abandoned(proposal, keys=keys, backlog=state.backlog)
    if found is not None:
        yield f"it is like {found.id} '{found.title}', abandoned: {found.last.why}; name `what_changed`"


def keys_of_proposal(proposal: Proposal, state: PlanningState) -> tuple[str, ...]:
    """Its keys at the incumbent of `state`."""
    incumbent = (state.incumbent.components, state.incumbent.parameters)
    return keys_of(proposal, incumbent=incumbent, scaffold=state.scaffold, skills=state.skills)
