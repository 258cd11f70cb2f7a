"""The port of the agents: what a planner, an implementer and a judge are given and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from vibeserve import spec
from vibeserve.core.nouns import Proposal, Refusal, Round
from vibeserve.errors import SpecError
from vibeserve.skills import Scaffold, Skill, TargetFacts

Parameters = Mapping[str, float | int | str | bool]


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """The composition of a workspace: what a checkpoint consists of, as far as it was assembled."""

    components: tuple[str, ...] = ()
    parameters: dict[str, float | int | str | bool] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PlanningState:
    """All that a planner may know: the target's facts, the skills, the incumbent and what was tried."""

    facts: TargetFacts
    scaffold: Scaffold
    skills: Sequence[Skill]
    incumbent: Assembled
    spans: dict[str, float]
    """share of the incumbent's request wall time by span; sums to 1"""
    records: Sequence[Round]
    min_effect: float
    """gains below this share are not accepted, so they are not worth a round"""
    pins: Parameters = field(default_factory=dict)
    """parameters that the whole search leaves at these values, wherever an assembly declares them so"""


class PlannerAgent(Protocol):
    def propose(self, state: PlanningState) -> Proposal | None:
        """The next hypothesis, or None when nothing that is left promises a gain."""
        ...


class ImplementerAgent(Protocol):
    @property
    def origin(self) -> str:
        """How lines of its own are attributed: `agent:<back end/model>`; empty when it only assembles."""
        ...

    def implement(self, proposal: Proposal, *, workspace: Path) -> None:
        """Write the candidate of `proposal` into the new folder `workspace`."""
        ...

    def revise(self, proposal: Proposal, *, refusals: Sequence[Refusal], state: PlanningState) -> Proposal | None:
        """Another attempt at a refused proposal, from the refusals' feedback; None to give up."""
        ...


class JudgeAgent(Protocol):
    def review(self, workspace: Path, *, proposal: Proposal) -> list[Refusal]:
        """Refusals to add to the gates' own. It can never remove one."""
        ...


def get_agents(
    declared: spec.Agents, *, search: spec.Search, scaffold: Path, skills: Sequence[Skill]
) -> tuple[PlannerAgent, ImplementerAgent, JudgeAgent]:
    """The three agents as declared, the planner by the search's policy; a SpecError lists what is valid for an unknown
    one."""
    from vibeserve.agents.playbook import PlaybookImplementer, PlaybookJudge, PlaybookPlanner
    from vibeserve.agents.random_choice import RandomPlanner

    for role in ("planner", "implementer", "judge", "evaluator"):
        backend = getattr(declared, role).backend
        if backend != "playbook":
            raise SpecError(f"agents.{role}.backend: unknown back end '{backend}'", problems=["valid: playbook"])
    planners: dict[str, Callable[[], PlannerAgent]] = {
        "greedy": PlaybookPlanner,
        "random": lambda: RandomPlanner(search.seed),
    }
    if search.policy not in planners:
        raise SpecError(f"search.policy: unknown policy '{search.policy}'", problems=[f"valid: {', '.join(planners)}"])
    return planners[search.policy](), PlaybookImplementer(scaffold, skills=skills), PlaybookJudge()
