"""Where the outer loop meets the people who steer it: what is tried next, and the safe points on the way."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vibeserve.agents import PlannerAgent, PlanningState
from vibeserve.control import Phase, Site, Steering
from vibeserve.control.proposals import keys_of_proposal
from vibeserve.core.nouns import Proposal, Round
from vibeserve.errors import RefusedError
from vibeserve.planning import FRAMEWORK, ItemState, refuse_unsuitable
from vibeserve.rounds import Team


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What the next round tries."""

    proposal: Proposal
    item: str
    """of the backlog; empty where it is refused and nobody's"""
    refused: RefusedError | None = None
    """it was given up before, or is ruled out"""


def look(team: Team, steering: Steering, *, phase: Phase, number: int, state: PlanningState) -> None:
    """A safe point of the search: handle what people ask, and seat the agents that hold from now on."""
    site = Site(phase=phase, round=number, state=state, is_assembling=not team.implementer.origin)
    steering.safe_point(site)
    agents = steering.agents
    if agents is not None:
        team.implementer, team.reviewer, team.explainer = agents.implementer, agents.judge, agents.evaluator


def choose(
    planner: PlannerAgent, state: PlanningState, steering: Steering, *, number: int,
    queued: tuple[Proposal, str] | None = None, beside: Iterable[int] = (),
) -> Choice | None:  # fmt: skip
    """A person's proposal where one is in line (`queued`), else the planner's; None where it has none. Its item is in
    progress from here on, like those of the rounds `beside` it. RefusedError where the planner's answer cannot be
    used."""
    proposal, item = queued or (planner.propose(state), "")
    if proposal is None:
        return None
    book, keys = steering.book, keys_of_proposal(proposal, state)
    try:
        refuse_unsuitable(
            proposal, keys=keys, backlog=book.backlog, constraints=state.constraints, scaffold=state.scaffold,
            incumbent=state.incumbent.components, skills=state.skills,
        )  # fmt: skip
    except RefusedError as error:
        if item:
            book.change(book.backlog.items[item], ItemState.ABANDONED, who=FRAMEWORK, round=number, why=str(error))
        return Choice(proposal=proposal, item=item, refused=error)
    return Choice(proposal=proposal, item=book.start(proposal, number=number, keys=keys, item=item, beside=beside))


def why_round_ends(team: Team, steering: Steering, record: Round, *, item: str, state: PlanningState) -> str:
    """The safe point between two attempts of a round: why there is no further one; empty = there is."""
    look(team, steering, phase=Phase.ATTEMPT, number=record.number, state=state)
    return steering.state.stopped or steering.veto_of(item)


def keys_of_round(record: Round, state: PlanningState) -> Iterable[str]:
    """Of every assembly that a round offered, at the incumbent that it started from."""
    offered = [attempt.proposal for attempt in record.refused_attempts]
    offered += [record.proposal] if record.proposal is not None else []
    return [key for proposal in offered for key in keys_of_proposal(proposal, state)]
