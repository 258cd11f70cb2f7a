"""The bodies of the build graph: weights, reference, baselines, synthesize, certify, package."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path

from vibeserve.accuracy import accuracy_refusals, rescore
from vibeserve.artifact import Contents, package
from vibeserve.benchmark import RealClock, headroom
from vibeserve.build.graph import Step, StepContext, StepResult
from vibeserve.build.manifests import make_manifest, round_records
from vibeserve.build.runs import Run, certify_estimate_s
from vibeserve.certification import Certification, Certifier, certify_extent
from vibeserve.core.documents import from_data, to_data
from vibeserve.core.nouns import Chunk, Reply
from vibeserve.errors import InfraError
from vibeserve.plan import plan_document
from vibeserve.resolution import Resolved, load_rivals, num_interleaved, resolve_baselines
from vibeserve.results import WINNER
from vibeserve.roles.evaluator import Evaluator
from vibeserve.roles.judge import Judge
from vibeserve.rounds import Checkpoint
from vibeserve.seeds import get_seed
from vibeserve.skills import target_facts
from vibeserve.synthesis import restore, synthesize
from vibeserve.weights import load_tokenizer
from vibeserve.workloads import Pool, request_stream

CONTROL_REPLIES = 4
HEADROOM_TOKENS_PER_S = 500.0
"""above what one core decodes of the smallest model here; the stub streams twice as many"""
HEADROOM_STREAMS = 16


def make_steps(run: Run) -> list[Step]:
    """The graph of one plan. Keys are made of what the plan digests, so that an override redoes what depends on it."""
    plan, spec = run.plan, run.plan.spec
    bodies = Bodies(run)
    gate = {
        "tolerances": to_data(spec.evaluation.tolerances),
        "workload": to_data(spec.workload),
        "framework": plan.digests["framework"],
    }
    machine = {"engine_cpus": plan.engine_cpus, "threads": plan.threads, "hardware": plan.digests["hardware"]}
    rivals = {"baseline": to_data(spec.baseline), "workload": to_data(spec.workload), **machine}
    whole = {"plan_id": plan.plan_id}
    artifact = run.project / spec.out_dir / plan.target / plan.plan_id
    return [
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


class Bodies:
    """Step bodies over one run."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def weights(self, context: StepContext) -> StepResult:
        model = self._run.model()
        document = {"path": str(model.path), "digest": model.digest, "num_parameters": model.num_parameters}
        return StepResult(document=document, outputs=(model.path / "weights.json",))

    def reference(self, context: StepContext) -> StepResult:
        """The reference loads, and the accuracy gate refuses text that the model did not write."""
        run = self._run
        model = run.model()
        replies = control_replies(run)
        scores = rescore(
            replies,
            model_dir=model.path,
            num_threads=run.facts.num_cpus,
            max_replies=0,
            seed=0,
            run_dir=run.folder / "reference",
        )
        refusals, figures = accuracy_refusals(scores, tolerances=run.plan.spec.evaluation.tolerances)
        if not any(refusal.reason_class == "wrong_tokens" for refusal in refusals):
            raise InfraError("the accuracy gate passed text that the model did not write: the reference cannot judge")
        run.progress.event("reference", f"negative control refused: top-1 agreement {figures['top1_agreement']:.2f}")
        return StepResult(document={"control": figures})

    def baselines(self, context: StepContext) -> StepResult:
        """The yardstick first: a load generator without headroom makes every server look alike."""
        run = self._run
        room = headroom(
            tokens_per_s=HEADROOM_TOKENS_PER_S, concurrency=HEADROOM_STREAMS, client_cpus=run.plan.client_cpus,
            engine_cpus=run.plan.engine_cpus,
        )  # fmt: skip
        room.check()
        run.progress.event("baselines", f"load generator keeps up with {room.reached_per_s:.0f} events/s")
        return StepResult(document=to_data(resolve_baselines(run.bench("baselines"), progress=run.progress)))

    def synthesize(self, context: StepContext) -> StepResult:
        run = self._run
        spec = run.plan.spec
        team, planner = run.team()
        rows = [from_data(Resolved, row) for row in context.upstream["baselines"].document]
        kept_s = certify_estimate_s(run.plan, num_rivals=num_interleaved(rows, declared=spec.baseline))
        spent_s = sum(float(event.data["record"]["seconds"]) for event in run.journal.events("round"))
        search = synthesize(
            team, seed=get_seed(spec.seed, modality=spec.model.modality), planner=planner,
            facts=target_facts(spec, cpu_flags=run.facts.cpu_flags), journal=run.journal,
            deadline_s=run.started_s + spec.budget.wall_s - spent_s - kept_s,
        )  # fmt: skip
        assert search.incumbent is not None
        run.journal.append("synthesized", {"winner": search.incumbent.candidate.candidate_id})
        return StepResult(document={"winner": to_data(search.incumbent), "num_rounds": len(search.entries)})

    def certify(self, context: StepContext) -> StepResult:
        run = self._run
        bench = run.bench("certify")
        winner = from_data(Checkpoint, context.upstream["synthesize"].document["winner"])
        rivals, skipped = load_rivals(bench, context.upstream["baselines"].document)
        workspace = bench.run_dir / "workspaces" / WINNER
        run.store().checkout(winner.candidate.commit, fresh_folder(workspace))
        certifier = Certifier(bench, Judge(bench), Evaluator(bench, RealClock()), progress=run.progress)
        result = certifier.certify(workspace, rivals=rivals, skipped=skipped, extent=certify_extent(run.plan))
        run.journal.append("certified", {"passed": result.verdict.passed, "accuracy": result.verdict.accuracy})
        return StepResult(document=to_data(result))

    def package(self, context: StepContext) -> StepResult:
        run = self._run
        team, _ = run.team()
        search = restore(team, run.journal)
        assert search.incumbent is not None
        result = from_data(Certification, context.upstream["certify"].document)
        workspace = fresh_folder(context.work_dir / "workspace")
        run.store().checkout(search.incumbent.candidate.commit, workspace)
        contents = Contents(
            manifest=make_manifest(run, search, result, workspace=workspace), spec=run.plan.spec,
            plan=plan_document(run.plan), workspace=workspace, rounds=round_records(run, search), golden=result.golden,
            checkpoints=run.store(), run=run.run_id, threads=run.plan.threads,
        )  # fmt: skip
        packaged = package(contents, out_dir=run.project / run.plan.spec.out_dir, journal=run.journal)
        return StepResult(document={"path": str(packaged.path), "sha256sums": packaged.sums_digest})


def fresh_folder(path: Path) -> Path:
    """`path` as it is before a checkout: absent, its parent there."""
    shutil.rmtree(path, ignore_errors=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def control_replies(run: Run) -> list[Reply]:
    """Replies whose text is somebody's, not the model's: what follows in the pool, as ids. The gate must refuse it."""
    tokenizer = load_tokenizer(run.model().path)
    requests = request_stream(run.plan.spec.workload, tokenizer=tokenizer, pool=Pool.visible, seed=0)
    replies = []
    for request in islice(requests, CONTROL_REPLIES):
        ids = tokenizer.encode(next(requests).prompt).ids[-request.max_tokens :]
        chunk = Chunk(at_s=0.0, text=tokenizer.decode(ids), token_ids=tuple(ids))
        replies.append(
            Reply(
                request=request,
                scheduled_s=0.0,
                sent_s=0.0,
                end_s=0.0,
                chunks=(chunk,),
                finish_reason="length",
                usage=None,
            )
        )
    return replies
