"""A spec compiled for one machine: frozen, hashed, every `auto` resolved, every input digested. Spends nothing."""

from __future__ import annotations

from vibeserve.plan.compile import compile_plan
from vibeserve.plan.document import plan_document
from vibeserve.plan.nouns import Ceiling, MemoryEstimate, Plan, PlanStep

__all__ = ["Ceiling", "MemoryEstimate", "Plan", "PlanStep", "compile_plan", "plan_document"]
