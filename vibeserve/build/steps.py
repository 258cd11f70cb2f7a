"""The bodies of the build graph: weights, reference, baselines, synthesize, certify, package."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from vibeserve.accuracy import refuse_unproven, try_faults
from vibeserve.agents import PlannerAgent
from vibeserve.artifact import Contents, package
from vibeserve.benchmark import RealClock, headroom
from vibeserve.benchmark.environment import environment, read_machine
from vibeserve.build.graph import Step, StepContext, StepResult
from vibeserve.build.kept import KeptCertification, read_kept
from vibeserve.build.manifests import make_manifest, round_records
from vibeserve.build.runs import Run, certify_estimate_s
from vibeserve.build.seeded import take_over
from vibeserve.build.series import write_series
from vibeserve.certification import Certification, Certifier, certify_extent
from vibeserve.control import Phase, Site
from vibeserve.core.documents import from_data, to_data, write_document
from vibeserve.journal import Journal
from vibeserve.lease import Lease
from vibeserve.modalities import bundle_ref
from vibeserve.plan import plan_document
from vibeserve.recordings import read_recording, recording_folder, replay, write_recording
from vibeserve.resolution import Resolved, load_rivals, num_interleaved, resolve_baselines
from vibeserve.results import WINNER
from vibeserve.roles.evaluator import Evaluator
from vibeserve.roles.judge import Judge
from vibeserve.rounds import Checkpoint, Team
from vibeserve.seeds import get_seeds, scaffold_settings
from vibeserve.skills import target_facts
from vibeserve.synthesis import Search, restore, synthesize

HEADROOM_EVENTS_PER_S = 500.0
"""above the tokens that one core decodes of the smallest model here; the stub streams twice as many"""
HEADROOM_STREAMS = 16


def make_steps(run: Run) -> list[Step]:
    """The graph of one plan. Keys are made of what the plan digests, so that an override redoes what depends on it."""
    plan, spec = run.plan, run.plan.spec
    bodies = Bodies(run)
    gate = {
        "tolerances": to_data(spec.evaluation.tolerances),
        "workload": to_data(spec.workload),
        "framework": plan.digests["framework"],
        "target": plan.digests["target"],
    }
    machine = {"engine_cpus": plan.engine_cpus, "threads": plan.threads, "hardware": plan.digests["hardware"]}
    rivals = {"baseline": to_data(spec.baseline), "workload": to_data(spec.workload), **machine}
    whole = {"plan_id": plan.plan_id}
    artifact = run.project / spec.out_dir / plan.target / plan.plan_id
    steps = [
        Step(
            name="weights", body=bodies.weights, inputs={"model": to_data(spec.model)},
            help="fetch or make the model's files",
        ),
        Step(
            name="reference", body=bodies.reference, deps=("weights",), inputs=gate,
            help="prove that the gate refuses",
        ),
        Step(
            name="baselines", body=bodies.baselines, deps=("weights",), inputs=rivals,
            help="check and calibrate baselines",
        ),
        Step(name="synthesize", body=bodies.synthesize, deps=("reference", "baselines"), inputs=whole, help="search"),
        Step(
            name="certify", body=bodies.certify, deps=("synthesize", "baselines"), inputs=whole,
            help="measure the winner beside every baseline",
        ),
        Step(
            name="package", body=bodies.package, deps=("certify",), inputs={**whole, "out_dir": spec.out_dir},
            outputs=(artifact,), help="write the artifact",
        ),
    ]  # fmt: skip
    return [replace(step, body=_steered(run, step, _leased(run.lease, step.body))) for step in steps]


def _steered(run: Run, step: Step, body: Callable[[StepContext], StepResult]) -> Callable[[StepContext], StepResult]:
    """`body` behind a safe point, ahead of the search; the later steps have theirs where they begin."""
    if step.name in ("certify", "package"):
        return body

    def after_safe_point(context: StepContext) -> StepResult:
        run.steering.safe_point(Site(phase=Phase.BUILD, round=0))
        return body(context)

    return after_safe_point


def _leased(lease: Lease, body: Callable[[StepContext], StepResult]) -> Callable[[StepContext], StepResult]:
    """`body` beside others that do not measure. A step that is up to date does not get here, so it waits for nobody."""

    def with_lease(context: StepContext) -> StepResult:
        with lease.shared(context.name):
            return body(context)

    return with_lease


class Bodies:
    """Step bodies over one run."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def weights(self, context: StepContext) -> StepResult:
        model = self._run.model()
        document = {"path": str(model.path), "digest": model.digest, "num_parameters": model.num_parameters}
        return StepResult(document=document, outputs=(model.path / "weights.json",))

    def reference(self, context: StepContext) -> StepResult:
        """The reference loads, and the accuracy gate refuses every planted fault and passes honest noise."""
        run = self._run
        bundle = bundle_ref(run.plan.spec, model_dir=run.model().path)
        with run.progress.busy("reference", "trying planted faults under the reference"):
            results = try_faults(bundle, num_threads=run.facts.num_cpus, run_dir=run.folder / "reference")
        refuse_unproven(results)
        num_wrong = sum(result.is_wrong for result in results)
        text = f"{num_wrong} wrong outputs refused, {len(results) - num_wrong} right ones passed"
        run.progress.event("reference", text, faults=[result.name for result in results])
        return StepResult(document={"faults": to_data(results)})

    def baselines(self, context: StepContext) -> StepResult:
        """The yardstick first: a load generator without headroom makes every server look alike."""
        run = self._run
        if run.plan.spec.host.kind != "local":
            run.progress.event("baselines", "the load generator's headroom is not measured on another machine")
            return StepResult(document=to_data(resolve_baselines(run.bench("baselines"), progress=run.progress)))
        with run.lease.exclusive("headroom"):
            room = headroom(
                events_per_s=HEADROOM_EVENTS_PER_S, concurrency=HEADROOM_STREAMS, client_cpus=run.plan.client_cpus,
                engine_cpus=run.plan.engine_cpus,
            )  # fmt: skip
        room.check()
        run.progress.event("baselines", f"load generator keeps up with {room.reached_per_s:.0f} events/s")
        return StepResult(document=to_data(resolve_baselines(run.bench("baselines"), progress=run.progress)))

    def synthesize(self, context: StepContext) -> StepResult:
        run = self._run
        spec = run.plan.spec
        rows = [from_data(Resolved, row) for row in context.upstream["baselines"].document]
        run.calibrated = "; ".join(f"{row.name} {row.note}" for row in rows if row.speed_per_s)
        team, planner = run.team()
        kept_s = certify_estimate_s(run.plan, num_rivals=num_interleaved(rows, declared=spec.baseline))
        spent_s = sum(float(event.data["record"]["seconds"]) for event in run.journal.events("round"))
        run.search_until_s = run.started_s + spec.budget.wall_s - spent_s - kept_s
        search = self._replayed(team) if spec.agents.backend == "replay" else self._searched(team, planner)
        assert search.incumbent is not None
        _append_once(run.journal, "synthesized", {"winner": search.incumbent.candidate.candidate_id})
        return StepResult(document={"winner": to_data(search.incumbent), "num_rounds": len(search.entries)})

    def _searched(self, team: Team, planner: PlannerAgent) -> Search:
        run, spec = self._run, self._run.plan.spec
        scaffold = team.bench.scaffold
        settings = scaffold_settings(spec, scaffold=scaffold)
        seed, *fallbacks = get_seeds(spec.seed, scaffold=scaffold, settings=settings, pins=spec.search.pins)
        take_over(run)
        return synthesize(
            team, planner=planner, seed=seed, fallbacks=fallbacks,
            facts=target_facts(spec, cpu_flags=run.facts.cpu_flags), journal=run.journal,
            deadline_s=run.search_until_s, monotonic=run.lease.monotonic, steering=run.steering,
        )  # fmt: skip

    def _replayed(self, team: Team) -> Search:
        folder = recording_folder(Path(self._run.plan.spec.agents.recording).expanduser())
        recording = read_recording(folder, target=self._run.plan.target)
        return replay(team, recording, folder=folder, journal=self._run.journal)

    def certify(self, context: StepContext) -> StepResult:
        """Measured once: what an earlier process of the run certified for the same inputs is taken as it was."""
        run = self._run
        self._safe_point()
        kept = context.work_dir / "certified.json"
        found = read_kept(kept, key=context.key)
        if found is None:
            found = self._certified(context)
            write_document(kept, found)
        _append_once(run.journal, "certified", found.event)
        return StepResult(document=found.result)

    def _certified(self, context: StepContext) -> KeptCertification:
        run = self._run
        bench = run.bench("certify")
        winner = from_data(Checkpoint, context.upstream["synthesize"].document["winner"])
        rivals, skipped = load_rivals(bench, context.upstream["baselines"].document)
        workspace = bench.run_dir / "workspaces" / WINNER
        run.store().checkout(winner.candidate.commit, fresh_folder(workspace))
        evaluator = Evaluator(bench, RealClock(), progress=run.progress)
        certifier = Certifier(bench, Judge(bench), evaluator, progress=run.progress)
        before = read_machine()
        result = certifier.certify(workspace, rivals=rivals, skipped=skipped, extent=certify_extent(run.plan))
        seen = environment(
            run.plan, facts=run.facts, before=before, after=read_machine(), sandbox_tier=bench.tier.value
        )
        verdict = result.verdict
        event = {"passed": verdict.passed, "accuracy": verdict.accuracy, "environment": to_data(seen)}
        return KeptCertification(key=context.key, result=to_data(result), event=to_data(event))

    def _safe_point(self) -> None:
        """What people asked since the search ended; a pause holds here."""
        last = len(self._run.journal.events("round")) - 1
        self._run.steering.safe_point(Site(phase=Phase.CERTIFICATION, round=last))

    def package(self, context: StepContext) -> StepResult:
        run = self._run
        self._safe_point()
        team, _ = run.team()
        search = restore(team, run.journal)
        assert search.incumbent is not None
        result = from_data(Certification, context.upstream["certify"].document)
        workspace = fresh_folder(context.work_dir / "workspace")
        run.store().checkout(search.incumbent.candidate.commit, workspace)
        recording = fresh_folder(context.work_dir / "recording")
        write_recording(
            recording, entries=search.entries, store=run.store(), target=run.plan.target, plan_id=run.plan.plan_id
        )
        contents = Contents(
            manifest=make_manifest(run, search, result), spec=run.plan.spec,
            plan=plan_document(run.plan), workspace=workspace, rounds=round_records(run, search), golden=result.golden,
            checkpoints=run.store(), run=run.run_id, threads=run.plan.threads, recording=recording,
            calls=run.folder / "agents", patches=self._patches(search, context),
        )  # fmt: skip
        packaged = package(contents, out_dir=run.project / run.plan.spec.out_dir, journal=run.journal)
        return StepResult(document={"path": str(packaged.path), "sha256sums": packaged.sums_digest})


    def _patches(self, search: Search, context: StepContext) -> Path | None:
        """The series upon a pinned engine; None for other seeds."""
        seed = self._run.plan.spec.seed
        if seed.kind != "git":
            return None
        folder = fresh_folder(context.work_dir / "patches")
        series = write_series(seed, search.entries, store=self._run.store(), folder=folder)
        text = f"{len(series.patches)} patches upon {seed.commit[:12]}: git am applies them"
        self._run.progress.event("package", text)
        return folder


def _append_once(journal: Journal, kind: str, data: Any) -> None:
    """Not again where a process that was killed behind it has said the same."""
    last = journal.last(kind)
    if last is None or last.data != data:
        journal.append(kind, data)


def fresh_folder(path: Path) -> Path:
    """`path` as it is before a checkout: absent, its parent there."""
    shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
