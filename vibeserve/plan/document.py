"""The plan as the JSON document that `vibeserve plan --json` prints and the artifact keeps."""

from __future__ import annotations

from typing import Any

from vibeserve.core.documents import to_data
from vibeserve.plan.nouns import Plan


def plan_document(plan: Plan) -> dict[str, Any]:
    """`{"plan_id", "target", "steps", "memory", "ceilings", "budget", "digests"}` (`design.md`, section 13)."""
    budget = {
        **to_data(plan.spec.budget),
        "schedule": to_data(plan.schedule),
        "estimated_minutes": round(plan.minutes, 1),
        "engine_cpus": list(plan.engine_cpus),
        "client_cpus": list(plan.client_cpus),
        "threads": plan.threads,
    }
    return {
        "schema_version": 1,
        "plan_id": plan.plan_id,
        "target": plan.target,
        "steps": to_data(plan.steps),
        "memory": to_data(plan.memory),
        "ceilings": to_data(plan.ceilings),
        "budget": budget,
        "digests": dict(plan.digests),
    }
