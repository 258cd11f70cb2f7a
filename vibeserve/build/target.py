"""`vibeserve +target=NAME`: compile the plan, bring its graph up to date, say what came out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

from vibeserve.artifact import read_manifest, verify_bytes
from vibeserve.baselines.presence import goal_texts, with_presence
from vibeserve.build.bandwidth import Bandwidth, read_bandwidth
from vibeserve.build.cost import RunCost, measured_cost
from vibeserve.build.run import execute
from vibeserve.build.runs import Run, refuse_short_budget, run_folder, run_id_of
from vibeserve.build.seeded import refuse_changed_artifact
from vibeserve.build.steps import make_steps
from vibeserve.build.told import broken_invariant, search_lines
from vibeserve.config.host_options import configured_hosts
from vibeserve.config.targets import project_root
from vibeserve.contract import absent_text
from vibeserve.core.manifest import BaselineValue, GoalResult, Intervention, Manifest, Selection
from vibeserve.core.paths import lease_dir
from vibeserve.core.storage import refuse_full_disk
from vibeserve.errors import GoalMissedError, InfraError, RefusedError
from vibeserve.hardware import HardwareFacts, probe, resolve_cpus
from vibeserve.hosts import get_host
from vibeserve.journal import Journal
from vibeserve.lease import DeviceLease, Lease, devices_of, own_run
from vibeserve.plan import Plan, compile_plan, refuse_obstacles
from vibeserve.plan.notes import time_to_search
from vibeserve.plan.unmeasured import compile_unmeasured
from vibeserve.planning import calibration_text
from vibeserve.progress import Progress
from vibeserve.skills import target_skills
from vibeserve.spec import ROLES, Level, Spec, resolve_role


class Hold(Protocol):
    """Holds a run for one process (`lease.own_run`)."""

    def __call__(self, folder: Path, *, run: str, progress: Progress) -> AbstractContextManager[None]: ...


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """What a finished run tells: where the artifact is and what it claims."""

    artifact: str
    latest: str
    manifest: Manifest
    cost: RunCost | None = None
    """None where the hardware is not priced"""
    search: tuple[str, ...] = ()
    """what is unusual about the search: no round tried, or a baseline that is the winner itself"""
    fault: str = ""
    """what of the search's state contradicted itself and ended it"""
    schema_version: int = 1
    kind: Literal["result"] = "result"
    """of the last line of `--json`, among the events"""

    def __str__(self) -> str:
        cost = [] if self.cost is None else [f"cost        {self.cost}"]
        search = [f"search      {line}" for line in self.search]
        ends = [f"artifact    {self.artifact}", f"next        vibeserve serve {self.latest}"]
        return "\n".join([*describe(self.manifest), *search, *cost, *ends])


def run_target(
    spec: Spec, *, progress: Progress, hold: Hold = own_run, overrides: Sequence[str] | None = None
) -> RunSummary:
    """Build the artifact of `spec` below the repository's root, else the working directory; a run that was interrupted
    goes on where it was.

    `overrides`: the words beside the target that `spec` was composed of, which the run's record keeps; None where there
    was no command.

    A second process with the same plan is refused (InfraError); with `hold=await_run`, as in a sweep, it waits for the
    first one and reports what that left. Raises RefusedError when the result is not certified (the artifact is written
    all the same), GoalMissedError when a goal is missed and the spec requires it, BudgetError when the wall time cannot
    hold what the level measures, and the typed errors of the steps.
    """
    (spec, facts), project = asked_there(spec), project_root()
    is_asked = spec.host.kind != "local"
    plan = with_presence(
        compile_unmeasured(spec, facts=facts, hosts=configured_hosts(project), is_asked=is_asked)
    )
    refuse_obstacles(plan)
    for text in goal_texts(plan.spec):
        progress.event("plan", text)
    refuse_short_budget(plan)
    refuse_changed_artifact(plan.spec)
    target_skills(spec)  # a library that is not valid ends the run here, before anything is spent
    folder = run_folder(project, plan)
    lease = DeviceLease(devices_of(plan.spec.hardware, facts), root=lease_dir(), run=run_id_of(plan), progress=progress)
    refuse_full_disk(project)
    with hold(folder, run=run_id_of(plan), progress=progress):
        with Journal.open(folder / "journal.jsonl") as journal:
            started_s = lease.monotonic()
            bandwidth = _journal_start(journal, plan, facts=facts, lease=lease, overrides=overrides)
            plan = compile_plan(spec, facts=bandwidth.facts(facts), is_asked=is_asked)
            progress.event("plan", f"{plan.target} {plan.plan_id}: about {plan.minutes:.0f} min, level {_level(plan)}")
            for text in time_to_search(plan.spec, schedule=plan.schedule, steps=plan.steps):
                progress.event("plan", text)
            run = Run(
                plan=plan, facts=facts, project=project, progress=progress, journal=journal, lease=lease,
                started_s=started_s,
            )  # fmt: skip
            execute(make_steps(run), state_dir=folder, progress=progress)
    return _concluded(_summary(plan, project=project), spec=spec)


def asked_there(spec: Spec) -> tuple[Spec, HardwareFacts]:
    """`spec` with the wall that the machine that is measured can build, and what that machine is. One that is not this
    one tells its bandwidth, too."""
    if spec.host.kind == "local":
        return spec, probe()
    host = get_host(spec.host)
    try:
        facts = host.probe()
        tier = host.resolve_tier(spec.sandbox.tier, allow_none=spec.sandbox.allow_none)
        if spec.hardware.kind == "cpu" and not spec.hardware.bandwidth_gb_s:
            engine_cpus, _ = resolve_cpus(spec.hardware, facts)
            facts = replace(facts, bandwidth_gb_s=host.bandwidth_gb_s(engine_cpus))
    finally:
        host.close()
    return replace(spec, sandbox=replace(spec.sandbox, tier=tier)), facts


def measured_facts(spec: Spec) -> HardwareFacts:
    """Of the machine that is measured."""
    return asked_there(spec)[1]


def report_run(plan: Plan, *, spec: Spec, project: Path) -> RunSummary:
    """What an earlier run of `plan` left in `project` (`is_packaged`). Measures nothing and waits for nobody. Raises as
    `run_target` would for that result."""
    return _concluded(_summary(plan, project=project), spec=spec)


def artifact_of(plan: Plan, *, project: Path) -> Path:
    """Where the plan's artifact is, or will be."""
    return project / plan.spec.out_dir / plan.target / plan.plan_id


def is_packaged(plan: Plan, *, project: Path) -> bool:
    """The plan's artifact is there, byte for byte as it was packaged."""
    artifact = artifact_of(plan, project=project)
    return artifact.is_dir() and not verify_bytes(artifact)


def _journal_start(
    journal: Journal, plan: Plan, *, facts: HardwareFacts, lease: Lease, overrides: Sequence[str] | None
) -> Bandwidth:
    """Open the run's record, or go on with it; returns the read bandwidth that it holds.

    The bandwidth is measured once a run and waits for the device like any measurement.
    """
    spec = plan.spec
    opened = journal.last("opened")
    if opened is None:
        found = read_bandwidth(plan, facts=facts, lease=lease)
        reading = {"bandwidth_gb_s": found.gb_s, "is_bandwidth_disturbed": found.is_disturbed}
        about = {
            "budget": {"rounds": spec.budget.rounds, "wall_s": spec.budget.wall_s},
            "headline": spec.goals[0].metric if spec.goals else "",
            "agents": {role: resolve_role(spec.agents, role).backend for role in ROLES},
            "overrides": None if overrides is None else list(overrides),
        }  # fmt: skip
        journal.append("opened", {"target": plan.target, "plan_id": plan.plan_id, **reading, **about})
    else:
        is_disturbed = bool(opened.data.get("is_bandwidth_disturbed", False))
        found = Bandwidth(gb_s=float(opened.data["bandwidth_gb_s"]), is_disturbed=is_disturbed)
    tier = get_host(spec.host).resolve_tier(spec.sandbox.tier, allow_none=spec.sandbox.allow_none)
    chosen = journal.last("tier")
    if chosen is None or chosen.data != tier.value:
        journal.append("tier", tier.value)
    return found


def _level(plan: Plan) -> str:
    return plan.spec.budget.level.value


def _summary(plan: Plan, *, project: Path) -> RunSummary:
    artifact = artifact_of(plan, project=project)
    manifest, folder = read_manifest(artifact), run_folder(project, plan)
    return RunSummary(
        artifact=_relative(artifact, project),
        latest=_relative(artifact.parent / "latest", project),
        manifest=manifest,
        cost=measured_cost(plan, manifest, steps_dir=folder / "steps"),
        search=tuple(search_lines(plan, manifest, journal=folder / "journal.jsonl")),
        fault=broken_invariant(folder / "journal.jsonl"),
    )


def _concluded(summary: RunSummary, *, spec: Spec) -> RunSummary:
    """The summary, or the error that a result which is not good enough ends with."""
    _refuse(summary)
    if summary.fault:
        raise InfraError(f"{summary}\n{summary.fault}")
    missed = [goal for goal in summary.manifest.goals if not goal.met]
    if spec.require_goal and missed:
        raise GoalMissedError(f"{summary}\ncertified, but {len(missed)} declared goals are missed (--require-goal)")
    return summary


def _relative(path: Path, project: Path) -> str:
    """From the working directory, so that it can be pasted; whole where it lies outside the project."""
    return os.path.relpath(path) if path.is_relative_to(project) else str(path)


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
        if manifest.level == Level.quick.value and any(row.ci_low is not None for row in headline.baselines):
            lines.append("            one start of each: what differs between two starts is not in the interval")
    lines += [f"goal        {_goal(goal)}" for goal in manifest.goals]
    lines += [f"spent       {_spent(manifest.usage)}"] if "measuring_share" in manifest.usage else []
    if manifest.selection is not None:
        lines.append(f"selection   {_selection(manifest.selection)}; {manifest.candidates_tried} candidates tried")
    if manifest.calibration is not None:
        lines.append(f"forecasts   {calibration_text(manifest.calibration)}")
    if manifest.interventions:
        lines.append(f"steered     {_steered(manifest.interventions)}")
    if manifest.audits:
        num_passed = sum(audit.passed for audit in manifest.audits)
        names = ", ".join(audit.name for audit in manifest.audits if not audit.passed)
        failed = f"; not {names}" if names else ""
        lines.append(f"audits      {num_passed} of {len(manifest.audits)} passed{failed}")
    lines += [f"refused     {reason.feedback}" for reason in manifest.reasons]
    return lines


def _steered(interventions: Sequence[Intervention]) -> str:
    """How often people stepped in, and how."""
    applied = [each.command for each in interventions if each.state == "applied"]
    num_refused = len(interventions) - len(applied)
    kinds = ", ".join(f"{command} {applied.count(command)}" for command in dict.fromkeys(applied))
    refused = f"{num_refused} refused" if num_refused else ""
    return "; ".join(filter(None, (kinds, refused)))


def _selection(chosen: Selection) -> str:
    """The certified number beside the one that it was chosen by."""
    values = f"{chosen.selected:.4g} {chosen.unit} in the search, certified {chosen.certified:.4g}"
    return f"{chosen.metric} at {chosen.load}: {values} (x{chosen.ratio:.3f})"


def _spent(usage: Mapping[str, float]) -> str:
    shares = f"{usage['measuring_share']:.0%} measuring, {usage['judging_share']:.0%} judging"
    discarded = int(usage.get("num_discarded_pairs", 0))
    return f"{usage['wall_s'] / 60:.1f} min in rounds and certification: {shares}" + (
        f"; {discarded} disturbed pairs were measured again" if discarded else ""
    )


def _against(row: BaselineValue) -> str:
    name = f"{f'{row.name} {row.version}'.rstrip()} ({row.baseline_class}, {row.precision})"
    if row.ratio is None:
        return f"{name}: {row.state}, {row.note}" if row.note else f"{name}: {row.state}"
    interval = f" [{row.ci_low:.3f}, {row.ci_high:.3f}]" if row.ci_low is not None and row.ci_high is not None else ""
    return f"{name}: {row.value:.4g}, ratio {row.ratio:.3f}{interval}" + (
        "" if row.state == "measured" else f", {row.state}"
    )


def _goal(goal: GoalResult) -> str:
    verdict = "met" if goal.met else "missed"
    if goal.against:
        ratio = absent_text(goal.metric) if goal.ratio is None else f"ratio {goal.ratio:.3f}"
        return f"{goal.metric} at {goal.load} against {goal.against}: {ratio}: {verdict}"
    value = absent_text(goal.metric) if goal.value is None else f"{goal.value:.4g} {goal.unit}"
    return f"{goal.metric} at {goal.load}: {value}, limit {goal.limit:g}: {verdict}"
