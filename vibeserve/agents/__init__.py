"""Agents behind one port: the playbook (no model at all) is the embedded default."""

from __future__ import annotations

from vibeserve.agents.moves import TUNING_CARD
from vibeserve.agents.port import Assembled, ImplementerAgent, JudgeAgent, PlannerAgent, PlanningState, get_agents

__all__ = ["TUNING_CARD", "Assembled", "ImplementerAgent", "JudgeAgent", "PlannerAgent", "PlanningState", "get_agents"]
