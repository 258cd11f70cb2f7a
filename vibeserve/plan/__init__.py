"""A spec compiled for one machine: frozen, hashed, every `auto` resolved, every input digested. Spends nothing."""

from __future__ import annotations

from vibeserve.plan.compile import compile_plan
from vibeserve.plan.cost import break_even_requests, usd_per_request
from vibeserve.plan.document import plan_document
from vibeserve.plan.nouns import Ceiling, Cost, MemoryEstimate, Obstacle, Plan, PlanStep
from vibeserve.plan.placement import obstacles_of, refuse_obstacles

__all__ = [
    "Ceiling",
    "Cost",
    "MemoryEstimate",
    "Obstacle",
    "Plan",
    "PlanStep",
    "break_even_requests",
    "compile_plan",
    "obstacles_of",
    "plan_document",
    "refuse_obstacles",
    "usd_per_request",
]
