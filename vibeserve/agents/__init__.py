"""Agents behind one port: the playbook (no model at all) is the embedded default."""

from __future__ import annotations

from vibeserve.agents.port import Assembled, ImplementerAgent, JudgeAgent, PlannerAgent, PlanningState, get_agents

__all__ = ["Assembled", "ImplementerAgent", "JudgeAgent", "PlannerAgent", "PlanningState", "get_agents"]
