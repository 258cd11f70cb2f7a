"""A round's team whose roles are played by scripted answers; and a plan that is the same on every machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from loop_fakes import Library
from scripted import Desk

from vibeserve.agents.language import (
    LanguageEvaluator,
    LanguageImplementer,
    LanguageJudge,
    LanguagePlanner,
    Shelf,
)
from vibeserve.agents.requests import AgentRequest
from vibeserve.config import compose_spec
from vibeserve.hardware import probe
from vibeserve.plan import Ceiling, Plan, compile_plan

PROPOSAL: dict[str, Any] = {
    "title": "batch the rows", "hypothesis": "one read of the weights for all", "mechanism": "rows are stacked first",
    "activation_evidence": "decode.linear shrinks", "falsification": "the interval includes 1", "forecast_ratio": 1.5,
    "invariants": ["replies do not depend on neighbours"], "skills": ["card"], "components": [], "parameters": [],
    "what_changed": "",
}  # fmt: skip
DONE = json.dumps({"status": "done", "summary": "stacked", "activation_evidence": "spans", "risks": "none"})
GAVE_UP = json.dumps({"status": "gave_up", "summary": "no room", "activation_evidence": "", "risks": ""})


def propose(**changes: Any) -> str:
    return json.dumps({"decision": "propose", "why": "it is largest", "proposal": {**PROPOSAL, **changes}})


def writes(text: str, *, name: str = "runtime/model.py", answer: str = DONE) -> Callable[[AgentRequest], str]:
    """An answer that edits a file first."""

    def edit(request: AgentRequest) -> str:
        path = request.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return answer

    return edit


def tiny_plan(target: str = "tiny_cpu", **changes: Any) -> Plan:
    """Of a shipped target; what depends on the machine is fixed."""
    plan = _compiled(target)
    ceiling = Ceiling(metric="output_throughput", unit="tok/s", value=120.0, bound_by="bandwidth", load="c4")
    fixed: dict[str, Any] = {
        "engine_cpus": (0, 1), "client_cpus": (2,), "threads": 2, "ceilings": (ceiling,), "decode": (),
        "memory": replace(plan.memory, capacity_gib=8.0),
    }  # fmt: skip
    return replace(plan, **{**fixed, **changes})


@cache
def _compiled(target: str) -> Plan:
    return compile_plan(compose_spec([f"+target={target}"]), facts=probe())


def role_parts(desk: Desk, library: Library, *, has_components: bool = True) -> dict[str, Any]:
    shelf = Shelf(skills=library.skills, folder=library.skills_root, has_components=has_components)
    return {
        "caller": desk.caller, "plan": tiny_plan(), "shelf": shelf, "model_dir": Path("/models/tiny"),
        "machine": "a CPU",
    }  # fmt: skip


def planner_of(desk: Desk, library: Library, **shelf: Any) -> LanguagePlanner:
    return LanguagePlanner(**role_parts(desk, library, **shelf))


def implementer_of(desk: Desk, library: Library, **shelf: Any) -> LanguageImplementer:
    return LanguageImplementer(scaffold=library.scaffold, **role_parts(desk, library, **shelf))


def judge_of(desk: Desk, library: Library) -> LanguageJudge:
    return LanguageJudge(**role_parts(desk, library))


def evaluator_of(desk: Desk, library: Library) -> LanguageEvaluator:
    return LanguageEvaluator(**role_parts(desk, library))
