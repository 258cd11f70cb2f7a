"""Declared baselines that are not installed here: told before anything is spent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from vibeserve.baselines.registry import NO_LAUNCHER, availability
from vibeserve.plan import Plan
from vibeserve.plan.nouns import Obstacle
from vibeserve.spec import Spec


@dataclass(frozen=True, kw_only=True)
class Absent:
    """A declared baseline that cannot be measured here."""

    name: str
    is_required: bool
    reason: str
    """with the command that installs it, where one does"""


def absent_baselines(spec: Spec) -> list[Absent]:
    """In the order of the declaration. Asks this machine; for hardware that is not here that says nothing."""
    found = [(name, declared.required, availability(name, declared)) for name, declared in spec.baseline.items()]
    return [
        Absent(name=name, is_required=required, reason=there.reason)
        for name, required, there in found
        if there.version is None
    ]


def required_texts(spec: Spec) -> Iterator[str]:
    """One line for every required baseline that could be installed and is not, with the command. Those without a
    launcher are the plan's own obstacles."""
    for item in absent_baselines(spec):
        if item.is_required and item.name not in NO_LAUNCHER:
            yield f"baseline.{item.name}: required, and {item.reason}"


def goal_texts(spec: Spec) -> Iterator[str]:
    """One line for every relative goal with nobody left to be measured against. Such a goal ends as missed."""
    reasons = {item.name: item.reason for item in absent_baselines(spec) if not item.is_required}
    for index, goal in enumerate(spec.goals):
        members = [
            name for name, declared in spec.baseline.items() if goal.against in (name, declared.baseline_class.value)
        ]
        if goal.min_ratio is not None and members and all(name in reasons for name in members):
            whom = "; ".join(f"{name}: {reasons[name]}" for name in members)
            yield f"goals[{index}]: nothing to measure it against is here, so that it cannot be met ({whom})"


def with_presence(plan: Plan) -> Plan:
    """`plan` with what is not installed as obstacles and notes; as it is where its hardware is elsewhere."""
    if any(obstacle.kind == "host" for obstacle in plan.obstacles):
        return plan
    absent = tuple(Obstacle(kind="baseline", text=text) for text in required_texts(plan.spec))
    return replace(plan, obstacles=(*plan.obstacles, *absent), notes=(*plan.notes, *goal_texts(plan.spec)))
