"""The events of a run: what `--json` prints, a line each, and what lines and the live view are written from.

An event's kind follows from where it comes from: the step, the round, the agent's call, the device. A fact that its
class does not declare is a fault of the program.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

StepStateName = Literal["started", "ran", "up to date", "failed", "skipped"]
OutcomeName = Literal["baseline", "accepted", "rejected", "crashed", "timed_out", "infra"]
ROUND = re.compile(r"round (\d+)\b")
CALL = re.compile(r"[rp]\d+(?:a\d+)?-(planner|implementer|judge|evaluator)")
PROPOSAL = re.compile(r"[ps]\d+")


@dataclass(frozen=True, kw_only=True)
class RunEvent:
    """Document: something happened in a run. What is None is left out of the line."""

    schema_version: int = 1
    at_s: float
    """seconds since the command began"""
    stage: str
    """step, round, agent's call or device that it comes from"""
    text: str
    """the same in words, on one line"""
    busy_s: float | None = None
    """only where nothing happened but that work goes on: since when"""
    job: int | None = None
    """only in the stream of a sweep: number of the job"""


@dataclass(frozen=True, kw_only=True)
class PlanEvent(RunEvent):
    """What is going to be done, and what is known about it before anything is spent."""

    kind: Literal["plan"] = "plan"


@dataclass(frozen=True, kw_only=True)
class StepEvent(RunEvent):
    """A step of the build graph changed its state, or says something."""

    kind: Literal["step"] = "step"
    state: StepStateName | None = None
    seconds: float | None = None
    """that it took so far"""
    faults: tuple[str, ...] | None = None
    """of step reference: planted faults and honest noise that were tried"""


@dataclass(frozen=True, kw_only=True)
class RoundEvent(RunEvent):
    """A round began (`proposal`), ended (`outcome`), or says something."""

    kind: Literal["round"] = "round"
    round: int
    proposal: str | None = None
    """title of what it tries; only at its beginning"""
    forecast_ratio: float | None = None
    """of the headline against the incumbent, by the proposal"""
    outcome: OutcomeName | None = None
    ratio: float | None = None
    """measured, of the headline against the incumbent; above 1 is better"""
    ci_low: float | None = None
    ci_high: float | None = None
    seconds: float | None = None
    attempts: int | None = None


@dataclass(frozen=True, kw_only=True)
class MeasureEvent(RunEvent):
    """Something about a measurement under way, such as a pair of windows that is measured again."""

    kind: Literal["measure"] = "measure"


@dataclass(frozen=True, kw_only=True)
class ProfileEvent(RunEvent):
    """What a profile of a candidate showed first."""

    kind: Literal["profile"] = "profile"


@dataclass(frozen=True, kw_only=True)
class AuditEvent(RunEvent):
    """An audit of the running server."""

    kind: Literal["audit"] = "audit"


@dataclass(frozen=True, kw_only=True)
class LeaseEvent(RunEvent):
    """The run waits for a device, or has it."""

    kind: Literal["lease"] = "lease"
    device: str | None = None


@dataclass(frozen=True, kw_only=True)
class ControlEvent(RunEvent):
    """A person's request was carried out or refused, or the run waits for one."""

    kind: Literal["control"] = "control"
    number: int | None = None
    """of the request"""
    command: str | None = None
    is_refused: bool | None = None


@dataclass(frozen=True, kw_only=True)
class InboxEvent(RunEvent):
    """A request to a person or another tool is open, answered or over."""

    kind: Literal["inbox"] = "inbox"


@dataclass(frozen=True, kw_only=True)
class AgentEvent(RunEvent):
    """An agent's call is repeated, or its answer is asked for once more."""

    kind: Literal["agent"] = "agent"
    key: str
    """session key of the call"""
    role: str


@dataclass(frozen=True, kw_only=True)
class VariantEvent(RunEvent):
    """A variant of a tuning proposal did not start."""

    kind: Literal["variant"] = "variant"
    proposal: str
    """id of the proposal"""


@dataclass(frozen=True, kw_only=True)
class NoteEvent(RunEvent):
    """Anything else, in words."""

    kind: Literal["note"] = "note"


STEPS = ("weights", "reference", "baselines", "synthesize", "certify", "package")
OF_STAGE: dict[str, type[RunEvent]] = {
    "plan": PlanEvent, "measure": MeasureEvent, "profile": ProfileEvent, "audit": AuditEvent, "lease": LeaseEvent,
    "control": ControlEvent, "inbox": InboxEvent, **dict.fromkeys(STEPS, StepEvent),
}  # fmt: skip
EVENTS: tuple[type[RunEvent], ...] = (
    PlanEvent, StepEvent, RoundEvent, MeasureEvent, ProfileEvent, AuditEvent, LeaseEvent, ControlEvent, InboxEvent,
    AgentEvent, VariantEvent, NoteEvent,
)  # fmt: skip
"""every kind"""


def event_of(stage: str, text: str, facts: Mapping[str, Any], *, at_s: float) -> RunEvent:
    """The typed event. TypeError for a fact that events of its kind do not have."""
    about: dict[str, Any] = {"stage": stage, "text": text, "at_s": round(at_s, 3), **facts}
    if number := ROUND.match(stage):
        return RoundEvent(round=int(number[1]), **about)
    if call := CALL.fullmatch(stage):
        return AgentEvent(key=stage, role=call[1], **about)
    if PROPOSAL.fullmatch(stage):
        return VariantEvent(proposal=stage, **about)
    # a graph of other steps than a build's tells their states, too
    default = StepEvent if "state" in facts else NoteEvent
    return OF_STAGE.get(stage, default)(**about)


def event_data(event: RunEvent) -> dict[str, Any]:
    """JSON data of an event: its declared fields in order, without what is None."""
    values = ((item.name, getattr(event, item.name)) for item in fields(event))
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values if value is not None}
