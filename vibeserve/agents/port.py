"""The port of the agents: what planner, implementer, judge and evaluator are given and what they answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from vibeserve.core.nouns import Decision, Proposal, Refusal, Round, Verdict
from vibeserve.planning import Backlog, Constraints, Memory
from vibeserve.profiles import Profile, planning_shares
from vibeserve.skills import Scaffold, Skill, TargetFacts

Parameters = Mapping[str, float | int | str | bool]


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """The composition of a workspace: what a checkpoint consists of, as far as it was assembled."""

    components: tuple[str, ...] = ()
    parameters: dict[str, float | int | str | bool] = field(default_factory=dict)
    is_edited: bool = False
    """somebody's own edits lie on top: it cannot be assembled again from its components"""
    forecast: float = 1.0
    """product of what was forecast of those edits: no card says it. Only the fake clock of tests reads it"""


@dataclass(frozen=True, kw_only=True)
class PlanningState:
    """All that a planner may know: the target's facts, the skills, the incumbent and what was tried."""

    facts: TargetFacts
    scaffold: Scaffold
    skills: Sequence[Skill]
    incumbent: Assembled
    spans: dict[str, float]
    """share of the incumbent's request wall time by span, by its own counters; sums to 1"""
    profile: Profile | None = None
    """of the incumbent, by the framework"""
    records: Sequence[Round]
    min_effect: float
    """gains below this share are not accepted, so they are not worth a round"""
    workspace: Path = Path()
    """the incumbent's, not to be changed"""
    tried: Path | None = None
    """as `Implementation.tried`"""
    pins: Parameters = field(default_factory=dict)
    """parameters that the whole search leaves at these values, wherever an assembly declares them so"""
    constraints: Constraints = field(default_factory=Constraints)
    """what a person has ruled out"""
    backlog: Backlog = field(default_factory=Backlog)
    """ideas that were had, with what became of them"""
    memory: Memory = field(default_factory=Memory)
    """notes that outlive a round"""
    number: int = 0
    """of the round that is planned; 0 = as many as there are records"""
    elsewhere: Sequence[Proposal] = ()
    """tried, or about to be, upon other checkpoints than this one: not to be proposed again"""
    avoided: tuple[str, ...] = ()
    """cards of a plateau: what relieves nothing but what these relieve is not to be proposed; titles, where an agent
    had the ideas"""

    @property
    def round_number(self) -> int:
        return self.number or len(self.records)

    @property
    def shares(self) -> dict[str, float]:
        """What gains are reckoned with, by span: of the profile where it is timed, else the spans."""
        return planning_shares(self.profile, self.spans)


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """What an implementer is given beside the proposal."""

    workspace: Path
    """new folder that the candidate is written into"""
    number: int
    attempt: int
    incumbent: Path | None = None
    """workspace of the incumbent, not to be changed"""
    assembled: Assembled = field(default_factory=Assembled)
    """the incumbent's composition"""
    previous: Path | None = None
    """workspace of the attempt that was refused"""
    refusals: Sequence[Refusal] = ()
    """of that attempt"""
    records: Sequence[Round] = ()
    tried: Path | None = None
    """folder with the patches of candidates that passed every gate and were not faster"""
    profile: Profile | None = None
    """of the incumbent"""


@dataclass(frozen=True, kw_only=True)
class Review:
    """What a judge is given: the candidate as it was measured, and what the gates and the decision say of it."""

    workspace: Path
    proposal: Proposal
    number: int
    attempt: int
    patch: str
    """against the incumbent"""
    verdict: Verdict
    decision: Decision | None
    metrics: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """medians at the headline load, of `candidate` and `incumbent`"""
    spans: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """shares of a request's wall time, of the same"""


@dataclass(frozen=True, kw_only=True)
class Reviewed:
    """What a judge answers: refusals to add to the gates' own, and a remark that decides nothing."""

    refusals: tuple[Refusal, ...] = ()
    remark: str = ""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What an evaluator is given: one finished round."""

    record: Round
    workspace: Path
    patch: str
    incumbent_spans: Mapping[str, float] = field(default_factory=dict)
    profile: Profile | None = None
    """of the candidate, where it was accepted"""
    records: Sequence[Round] = ()
    """the rounds before it"""


class PlannerAgent(Protocol):
    @property
    def why_stopped(self) -> str:
        """Why it proposed nothing, in its own words; empty = it has none."""
        ...

    def propose(self, state: PlanningState) -> Proposal | None:
        """The next hypothesis, or None when nothing that is left promises a gain."""
        ...


class ImplementerAgent(Protocol):
    @property
    def origin(self) -> str:
        """How lines of its own are attributed: `agent:<back end/model>`; empty when it only assembles."""
        ...

    def implement(self, proposal: Proposal, given: Implementation) -> None:
        """Write the candidate of `proposal` into the new folder `given.workspace`.

        RefusedError with typed reasons where nothing that may be judged came of it.
        """
        ...

    def revise(self, proposal: Proposal, *, refusals: Sequence[Refusal], state: PlanningState) -> Proposal | None:
        """Another attempt at a refused proposal, from the refusals' feedback; None to give up."""
        ...


class JudgeAgent(Protocol):
    def review(self, review: Review) -> Reviewed:
        """Refusals to add to the gates' own. It can never remove one."""
        ...


class EvaluatorAgent(Protocol):
    def explain(self, explanation: Explanation) -> str:
        """What a finished round's measurements mean, for the planner; empty = nothing to say. It decides nothing."""
        ...


@dataclass(frozen=True, kw_only=True)
class Agents:
    """One of each."""

    planner: PlannerAgent
    implementer: ImplementerAgent
    judge: JudgeAgent
    evaluator: EvaluatorAgent
