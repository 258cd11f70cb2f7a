"""What the requests so far add up to: a view of the journal's `control` events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from vibeserve import spec
from vibeserve.control.shapes import told
from vibeserve.core.manifest import Intervention
from vibeserve.journal import Event
from vibeserve.planning import Constraints
from vibeserve.planning.backlog import refuse_version
from vibeserve.skills.card import Value

CONTROL_EVENT = "control"
"""event of the journal: one request was handled"""


@dataclass(frozen=True, kw_only=True)
class Handled:
    """Document: a request with what became of it."""

    schema_version: int = 1
    number: int
    command: str
    arguments: dict[str, Any]
    who: str
    at_s: float
    """when it was asked"""
    phase: str
    """where it was handled: build, proposal, attempt, certification or stopped"""
    round: int
    """the last finished one; between attempts the one under way"""
    effect: str = ""
    refused: str = ""
    """why nothing was done"""
    item: str = ""
    """of the backlog, where the request concerns one"""


@dataclass(frozen=True, kw_only=True)
class Queued:
    """A person's proposal and its item in the backlog, which says whether it still waits."""

    number: int
    item: str
    document: dict[str, Any]


@dataclass(kw_only=True)
class SteeringState:
    """Numbers that were handled, and what holds now."""

    handled: set[int] = field(default_factory=set)
    paused: str = ""
    """who paused it, and why; empty = it is not"""
    stopped: str = ""
    """who ended the search, and why"""
    banned: dict[str, None] = field(default_factory=dict)
    allowed: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    pins: dict[str, Value] = field(default_factory=dict)
    budget: dict[str, float] = field(default_factory=dict)
    roles: dict[str, dict[str, str]] = field(default_factory=dict)
    queue: list[Queued] = field(default_factory=list)

    @property
    def constraints(self) -> Constraints:
        return Constraints(banned=tuple(self.banned), allowed=dict(self.allowed))

    def take(self, done: Handled) -> None:
        """Count one more handled request."""
        self.handled.add(done.number)
        if done.refused:
            return
        arguments = done.arguments
        if done.command in ("pause", "resume", "stop"):
            self._take_flow(done)
        elif done.command == "constrain":
            self.banned |= dict.fromkeys(arguments.get("ban", ()))
            self.allowed |= {name: tuple(values) for name, values in arguments.get("only", {}).items()}
            for name in arguments.get("lift", ()):
                self.banned.pop(name, None)
                self.allowed.pop(name, None)
        elif done.command == "pin":
            self.pins |= arguments.get("values", {})
            for name in arguments.get("lift", ()):
                self.pins.pop(name, None)
        elif done.command == "budget":
            self.budget |= {name: value for name, value in arguments.items() if name != "why"}
        elif done.command == "backend":
            self.roles |= arguments["roles"]
        elif done.command == "propose":
            self.queue.append(Queued(number=done.number, item=done.item, document=arguments["proposal"]))

    def _take_flow(self, done: Handled) -> None:
        why = f": {done.arguments['why']}" if done.arguments.get("why") else ""
        self.paused = f"{done.who}{why}" if done.command == "pause" else ""
        if done.command == "stop":
            self.stopped = f"stopped by {done.who}{why}"


def handled_of(events: Iterable[Event]) -> list[Handled]:
    """Every handled request, in order. JournalError for one of another version."""
    return [_handled(event.data) for event in events if event.kind == CONTROL_EVENT]


def _handled(data: Mapping[str, Any]) -> Handled:
    refuse_version(data, what="a steering request")
    return Handled(**data)


def steering_of(events: Iterable[Event]) -> SteeringState:
    """What a journal's events add up to."""
    state = SteeringState()
    for done in handled_of(events):
        state.take(done)
    return state


def steered_spec(declared: spec.Spec, state: SteeringState) -> spec.Spec:
    """The spec with the budget and the back ends that hold now."""
    roles: dict[str, Any] = {role: _agent(declared.agents, role, fields) for role, fields in state.roles.items()}
    budget: dict[str, Any] = dict(state.budget)
    return replace(
        declared, agents=replace(declared.agents, **roles), budget=replace(declared.budget, **budget)
    )  # fmt: skip


def _agent(declared: spec.Agents, role: str, fields: Mapping[str, str]) -> spec.Agent:
    """The role's limits stay; what belonged to its old back end goes."""
    own: spec.Agent = getattr(declared, role)
    return spec.Agent(
        max_tokens=own.max_tokens, max_usd=own.max_usd, timeout_s=own.timeout_s, max_turns=own.max_turns, **fields
    )


def interventions_of(events: Iterable[Event]) -> tuple[Intervention, ...]:
    """What people asked of a run, for its manifest."""
    return tuple(
        Intervention(
            number=done.number, command=done.command, text=told(done.command, done.arguments), who=done.who,
            at=datetime.fromtimestamp(done.at_s, UTC).isoformat(timespec="seconds"), round=done.round,
            state="refused" if done.refused else "applied", effect=done.refused or done.effect,
        )
        for done in handled_of(events)
    )  # fmt: skip
