"""Agents behind one port: the playbook (no model at all) is the embedded default."""

from __future__ import annotations

from vibeserve.agents.moves import TUNING_CARD
from vibeserve.agents.port import (
    Agents,
    Assembled,
    EvaluatorAgent,
    Explanation,
    Implementation,
    ImplementerAgent,
    JudgeAgent,
    PlannerAgent,
    PlanningState,
    Review,
    Reviewed,
)

__all__ = [
    "TUNING_CARD",
    "Agents",
    "Assembled",
    "EvaluatorAgent",
    "Explanation",
    "Implementation",
    "ImplementerAgent",
    "JudgeAgent",
    "PlannerAgent",
    "PlanningState",
    "Review",
    "Reviewed",
]
