"""What may become a round, whoever proposes it."""

from __future__ import annotations

from collections.abc import Sequence

from vibeserve.core.nouns import Proposal, Refusal
from vibeserve.errors import RefusedError, SpecError
from vibeserve.planning.backlog import Backlog
from vibeserve.planning.constraints import Constraints
from vibeserve.planning.likeness import like_abandoned
from vibeserve.skills import Scaffold, Skill, declared_parameters, resolve

GATE = "planning"
ALREADY_ABANDONED, BANNED_COMPONENT, BANNED_VALUE = "already_abandoned", "banned_component", "banned_value"


def refuse_unsuitable(
    proposal: Proposal, *, keys: Sequence[str], backlog: Backlog, constraints: Constraints,
    incumbent: Sequence[str], scaffold: Scaffold, skills: Sequence[Skill],
) -> None:  # fmt: skip
    """RefusedError, gate `planning`, for an idea that was given up or that a person has ruled out.

    `incumbent`: its components. A proposal that cannot be assembled at all is left to the round, which says why.
    """
    refusals = [
        *ruled_out(proposal, constraints=constraints, incumbent=incumbent, scaffold=scaffold, skills=skills),
        *_repeated(proposal, keys=keys, backlog=backlog),
    ]
    if refusals:
        raise RefusedError(f"{proposal.title}: {refusals[0].text}", reasons=refusals)


def ruled_out(
    proposal: Proposal, *, constraints: Constraints, incumbent: Sequence[str], scaffold: Scaffold,
    skills: Sequence[Skill],
) -> list[Refusal]:  # fmt: skip
    """What of the proposal a constraint forbids."""
    if not constraints:
        return []
    try:
        chosen = resolve(proposal.components, skills)
    except SpecError:
        return []
    names = constraints.bans([skill.name for skill in chosen], incumbent=incumbent)
    declared = declared_parameters(scaffold, chosen)
    offered = proposal.variants or (proposal.parameters,)
    values = dict.fromkeys(pair for each in offered for pair in constraints.broken_by(declared, each))
    refusals = [_refusal(BANNED_COMPONENT, f"component {name} is banned for this run") for name in names]
    for name, value in values:
        allowed = ", ".join(map(str, constraints.allowed[name]))
        refusals.append(_refusal(BANNED_VALUE, f"parameter {name} may only be {allowed} in this run, not {value}"))
    return refusals


def _repeated(proposal: Proposal, *, keys: Sequence[str], backlog: Backlog) -> list[Refusal]:
    found = like_abandoned(proposal, keys=keys, backlog=backlog)
    if found is None:
        return []
    last = found.last
    text = (
        f"it is like {found.id} '{found.title}', abandoned in round {last.round}: {last.why}; "
        "name in `what_changed` what is different now, or propose something else"
    )
    return [_refusal(ALREADY_ABANDONED, text)]


def _refusal(reason_class: str, text: str) -> Refusal:
    return Refusal(gate=GATE, reason_class=reason_class, text=text)
