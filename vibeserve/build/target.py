"""`vibeserve +target=NAME`: compile the plan, bring its graph up to date, say what came out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from vibeserve.artifact import read_manifest
from vibeserve.build.run import execute
from vibeserve.build.runs import Run, run_folder
from vibeserve.build.steps import make_steps
from vibeserve.core.manifest import BaselineValue, GoalResult, Manifest
from vibeserve.core.paths import data_dir
from vibeserve.errors import GoalMissedError, RefusedError
from vibeserve.hardware import probe
from vibeserve.hosts import get_host
from vibeserve.journal import Journal
from vibeserve.plan import compile_plan
from vibeserve.progress import Progress
from vibeserve.skills import load_skills
from vibeserve.spec import Spec


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """What a finished run tells: where the artifact is and what it claims."""

    artifact: str
    latest: str
    manifest: Manifest
    schema_version: int = 1

    def __str__(self) -> str:
        return "\n".join(
            [*describe(self.manifest), f"artifact    {self.artifact}", f"next        vibeserve serve {self.latest}"]
        )


def run_target(spec: Spec, *, progress: Progress) -> RunSummary:
    """Build the artifact of `spec` below the working directory; a run that was interrupted goes on where it was.

    Raises RefusedError when the result is not certified (the artifact is written all the same), GoalMissedError when a
    goal is missed and the spec requires it, and the typed errors of the steps.
    """
    started_s = time.monotonic()
    facts = probe()
    plan = compile_plan(spec, facts=facts)
    load_skills(data_dir("skills"))  # a library that is not valid ends the run here, before anything is spent
    project = Path.cwd()
    folder = run_folder(project, plan)
    progress.event(
        "plan", f"{plan.target} {plan.plan_id}: about {plan.minutes:.0f} min, level {plan.spec.budget.level.value}"
    )
    with Journal.open(folder / "journal.jsonl") as journal:
        tier = get_host(plan.spec.host).resolve_tier(plan.spec.sandbox.tier, allow_none=plan.spec.sandbox.allow_none)
        if not journal.events():
            journal.append("opened", {"target": plan.target, "plan_id": plan.plan_id})
        journal.append("tier", tier.value)
        run = Run(plan=plan, facts=facts, project=project, progress=progress, journal=journal, started_s=started_s)
        outcomes = execute(make_steps(run), state_dir=folder, progress=progress)
    artifact = Path(outcomes["package"].document["path"])
    summary = RunSummary(
        artifact=_relative(artifact, project),
        latest=_relative(artifact.parent / "latest", project),
        manifest=read_manifest(artifact),
    )
    _refuse(summary)
    missed = [goal for goal in summary.manifest.goals if not goal.met]
    if spec.require_goal and missed:
        raise GoalMissedError(f"{summary}\ncertified, but {len(missed)} declared goals are missed (--require-goal)")
    return summary


def _relative(path: Path, project: Path) -> str:
    return str(path.relative_to(project)) if path.is_relative_to(project) else str(path)


def _refuse(summary: RunSummary) -> None:
    manifest = summary.manifest
    if manifest.status != "certified":
        raise RefusedError(f"{summary}\nthe result is not certified", reasons=manifest.reasons)


def describe(manifest: Manifest) -> list[str]:
    """The result in a few lines: status, headline row by row, goals."""
    lines = [f"{manifest.status:<11} {manifest.target} {manifest.plan_id}, level {manifest.level}, {manifest.heading}"]
    headline = manifest.headline()
    if headline is not None:
        lines.append(f"headline    {headline.name} at {headline.load}: {headline.candidate:.4g} {headline.unit}")
        lines += [f"            {_against(row)}" for row in headline.baselines]
    lines += [f"goal        {_goal(goal)}" for goal in manifest.goals]
    lines += [f"refused     {reason.feedback}" for reason in manifest.reasons]
    return lines


def _against(row: BaselineValue) -> str:
    name = f"{row.name} {row.version} ({row.baseline_class}, {row.precision})"
    if row.ratio is None:
        return f"{name}: {row.state}, {row.note}" if row.note else f"{name}: {row.state}"
    interval = f" [{row.ci_low:.3f}, {row.ci_high:.3f}]" if row.ci_low is not None and row.ci_high is not None else ""
    return f"{name}: {row.value:.4g}, ratio {row.ratio:.3f}{interval}" + (
        "" if row.state == "measured" else f", {row.state}"
    )


def _goal(goal: GoalResult) -> str:
    verdict = "met" if goal.met else "missed"
    if goal.against:
        ratio = "no value" if goal.ratio is None else f"ratio {goal.ratio:.3f}"
        return f"{goal.metric} at {goal.load} against {goal.against}: {ratio}: {verdict}"
    value = "no value" if goal.value is None else f"{goal.value:.4g} {goal.unit}"
    return f"{goal.metric} at {goal.load}: {value}, limit {goal.limit:g}: {verdict}"
