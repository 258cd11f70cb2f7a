"""A team that does nothing: no model, no server, no window. What is left is the framework's own work."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from benchmarks.overhead.history import proposal
from vibeserve.agents import Implementation, PlanningState, briefs
from vibeserve.agents.playbook import PlaybookEvaluator, PlaybookJudge
from vibeserve.benchmark import RealClock
from vibeserve.checkpoint import CheckpointStore
from vibeserve.core.nouns import METRICS, Proposal, Refusal
from vibeserve.core.paths import data_dir
from vibeserve.core.spent import Spent
from vibeserve.lease import FreeLease
from vibeserve.plan import Plan
from vibeserve.progress import QuietProgress
from vibeserve.roles.evaluator import Evaluator
from vibeserve.roles.judge import Judge, Screening
from vibeserve.roles.workbench import Workbench
from vibeserve.rounds import Team
from vibeserve.skills import load_scaffold, load_skills

REFUSAL = Refusal(gate="scan", reason_class="nothing", text="nothing is measured here")


@dataclass(kw_only=True)
class NullPlanner:
    """Renders what a planner's prompt says of the search so far, and proposes `num_rounds` ideas at once."""

    num_rounds: int
    asked_at_s: list[float] = field(default_factory=list)
    why_stopped: str = "nothing more"

    def propose(self, state: PlanningState) -> Proposal | None:
        self.asked_at_s.append(time.perf_counter())
        briefs.incumbent_brief(state.incumbent, spans=state.spans, records=state.records)
        briefs.history_brief(state.records)
        briefs.planning_brief(state)
        briefs.analysis_brief(state.records)
        return proposal(len(state.records)) if len(self.asked_at_s) <= self.num_rounds else None


class NullImplementer:
    """A copy of the incumbent with one more file."""

    origin = "agent:none"

    def implement(self, proposal: Proposal, given: Implementation) -> None:
        assert given.incumbent is not None
        shutil.copytree(given.incumbent, given.workspace)
        (given.workspace / "NOTES.md").write_text(f"{proposal.title}\n", encoding="utf-8")

    def revise(self, proposal: Proposal, *, refusals: Sequence[Refusal], state: PlanningState) -> Proposal | None:
        return None


class NullJudge:
    """Refuses at once."""

    def screen(self, workspace: Path, *, name: str, seed: int) -> Screening:
        return Screening(refusals=(REFUSAL,), checks=("scan",), server=None, before=cast("Any", None))


@dataclass(kw_only=True)
class NullBench:
    """What the loops read of a bench."""

    plan: Plan
    run_dir: Path
    lease: FreeLease = field(default_factory=FreeLease)
    spent: Spent = field(default_factory=Spent)
    metrics: Any = field(default_factory=lambda: METRICS)


def null_team(plan: Plan, *, run_dir: Path, store: CheckpointStore, run_id: str) -> Team:
    """The real library, scaffold, store and records; nobody who works."""
    return Team(
        bench=cast("Workbench", NullBench(plan=plan, run_dir=run_dir)), judge=cast("Judge", NullJudge()),
        evaluator=cast("Evaluator", None), clock=RealClock(), implementer=NullImplementer(),
        reviewer=PlaybookJudge(), explainer=PlaybookEvaluator(),
        scaffold=load_scaffold(data_dir("templates") / "runtime" / "text"), skills=load_skills(data_dir("skills")),
        store=store, progress=QuietProgress(), run_id=run_id,
    )  # fmt: skip
