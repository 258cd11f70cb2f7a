"""The plan as the JSON document that `vibeserve plan --json` prints and the artifact keeps."""

from __future__ import annotations

from typing import Any

from vibeserve.core.documents import to_data
from vibeserve.plan.nouns import Plan


def plan_document(plan: Plan) -> dict[str, Any]:
    """`{"plan_id", "target", "steps", "memory", "parallelism", "ceilings", "floors", "ratios", "cost", "placement",
    "notes", "budget", "digests"}` (`design.md`, section 13; `docs/feasibility.md`). Unknown numbers are null."""
    budget = {
        **to_data(plan.spec.budget),
        "schedule": to_data(plan.schedule),
        "estimated_minutes": round(plan.minutes, 1),
        "engine_cpus": list(plan.engine_cpus),
        "client_cpus": list(plan.client_cpus),
        "threads": plan.threads,
    }
    placement = {
        "can_run_here": not plan.obstacles,
        "obstacles": to_data(plan.obstacles),
        "next_steps": list(plan.next_steps),
        "twin": plan.spec.target.twin,
    }
    return {
        "schema_version": 1,
        "plan_id": plan.plan_id,
        "target": plan.target,
        "steps": to_data(plan.steps),
        "memory": to_data(plan.memory),
        "parallelism": to_data(plan.spec.parallelism),
        "ceilings": to_data(plan.ceilings),
        "floors": {"roof": to_data(plan.roof), "prefill": to_data(plan.prefill), "decode": to_data(plan.decode)},
        "ratios": to_data(plan.ratios),
        "cost": to_data(plan.cost),
        "placement": placement,
        "notes": list(plan.notes),
        "budget": budget,
        "digests": dict(plan.digests),
    }
