"""A small finished run as documents, for the tests of artifact and report."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from vibeserve.artifact import Contents, Packaged, package
from vibeserve.checkpoint import CheckpointStore
from vibeserve.core.digests import framework_digest
from vibeserve.core.documents import digest_of
from vibeserve.core.manifest import (
    Authorship,
    BaselineValue,
    GoalResult,
    Golden,
    GoldenReply,
    Manifest,
    MetricResult,
    RoundEntry,
    RoundRecord,
)
from vibeserve.core.nouns import Direction, Outcome, Proposal, RatioInterval, Refusal, Role, Verdict
from vibeserve.journal import Journal
from vibeserve.plan.compile import hashed_spec
from vibeserve.results import goal_results
from vibeserve.spec import Baseline, BaselineClass, Budget, Goal, Level, Load, Spec, TargetInfo


def sample_metric(name: str, *, load: str = "c8", candidate: float = 120.0, peer: float = 70.0) -> MetricResult:
    is_headline = name == "output_throughput" and load == "c8"
    ratio = candidate / peer if name == "output_throughput" else peer / candidate
    measured = BaselineValue(
        name="transformers_cb", baseline_class="competent", version="5.24.0", flags=("--continuous-batching",),
        value=peer, ratio=ratio, ci_low=ratio * 0.97, ci_high=ratio * 1.04, weight_bits=16.0, kv_bits=16.0,
        bytes_per_token=2.7e8, roofline_share=0.21, note="dtype bfloat16 by calibration",
    )  # fmt: skip
    absent = BaselineValue(
        name="vllm", baseline_class="competent", version="", state="skipped", note="not installed", precision="any"
    )
    return MetricResult(
        name=name, unit="tok/s" if name == "output_throughput" else "s", load=load, candidate=candidate,
        direction=Direction.MAX if name == "output_throughput" else Direction.MIN,
        role=Role.HEADLINE if is_headline else Role.DIAGNOSTIC, baselines=(measured, absent), roofline_share=0.36,
    )  # fmt: skip


def sample_proposal(title: str) -> Proposal:
    return Proposal(
        proposal_id="p-" + title, title=title, hypothesis="decode waits on single requests", mechanism="batch them",
        activation_evidence="rows per step above 1", falsification="ratio below 1.02", forecast_ratio=1.8,
        components=("continuous_batching",), parameters={"max_num_seqs": 8}, card="continuous_batching",
    )  # fmt: skip


def sample_rounds() -> tuple[RoundEntry, ...]:
    refusal = Refusal(gate="accuracy", reason_class="top1_agreement", text="0.91 of the tokens agree, 0.97 are needed")
    spans = {"queue": 0.5, "decode.linear": 0.3, "prefill": 0.2}
    return (
        RoundEntry(number=0, outcome=Outcome.BASELINE, reason="the scaffold", cumulative_ratio=1.0, spans=spans),
        RoundEntry(
            number=1, outcome=Outcome.ACCEPTED, reason="1.8x, interval above 1", proposal=sample_proposal("Batching"),
            headline=RatioInterval(ratio=1.8, ci_low=1.7, ci_high=1.9, num_pairs=8), cumulative_ratio=1.8, seconds=61.0,
        ),
        RoundEntry(
            number=2, outcome=Outcome.REJECTED, reason="refused", proposal=sample_proposal("<b>Int4 & more</b>"),
            headline=RatioInterval(ratio=1.3, ci_low=1.2, ci_high=1.4, num_pairs=8), cumulative_ratio=2.34,
            refusals=(refusal,), seconds=58.5,
        ),
        RoundEntry(number=3, outcome=Outcome.CRASHED, reason="the server died", proposal=sample_proposal("Compile")),
    )  # fmt: skip


def sample_manifest(**changes: object) -> Manifest:
    fields: dict[str, object] = {
        "target": "sample", "plan_id": "0123456789abcdef", "status": "certified", "level": "quick",
        "created_at": "2026-11-30T08:00:00Z", "sandbox_tier": "A",
        "hardware": {"cpu_model": "Xeon", "num_cpus": 2, "memory_gib": 8, "cpu_flags": ["avx512f", "avx512_vnni"]},
        "not_run": ("soak",),
        "goals": (
            GoalResult(
                metric="output_throughput", load="c8", against="competent", ratio=1.71, ci_low=1.66, met=True, limit=1.5
            ),
        ),
        "authorship": (
            Authorship(origin="scaffold", lines=900, share_of_log_ratio=0.0),
            Authorship(origin="component:continuous_batching", lines=210, share_of_log_ratio=1.0),
        ),
        "metrics": (
            sample_metric("output_throughput"), sample_metric("tpot_p50", candidate=0.05, peer=0.09),
            sample_metric("output_throughput", load="c4", candidate=80.0, peer=60.0),
            sample_metric("tpot_p50", load="c4", candidate=0.04, peer=0.06),
        ),
        "accuracy": {"top1_agreement": 0.994}, "candidates_tried": 3,
        "usage": {"wall_s": 300.0, "tokens": 0.0, "usd": 0.0},
        "digests": {"weights": "ab" * 32}, "rounds": sample_rounds(),
        "provenance": {
            "buildDefinition": {"resolvedDependencies": [{"name": "weights", "digest": {"sha256": "ab" * 32}}]}
        },
    }  # fmt: skip
    return Manifest(**(fields | changes))  # type: ignore[arg-type]


def sample_spec(manifest: Manifest) -> Spec:
    """A spec that the sample's manifest could be of."""
    baselines = {
        base.name: Baseline(baseline_class=BaselineClass(base.baseline_class))
        for metric in manifest.metrics
        for base in metric.baselines
    }
    budget = Budget(level=Level(manifest.level))
    return Spec(target=TargetInfo(name=manifest.target), baseline=baselines, budget=budget)


def sample_plan(manifest: Manifest) -> dict[str, object]:
    return {
        "schema_version": 1, "plan_id": manifest.plan_id, "target": manifest.target,
        "budget": {"level": manifest.level}, "digests": dict(manifest.digests),
    }  # fmt: skip


def package_own(folder: Path) -> Packaged:
    """A sample that this very framework could have made: plan id, goals and pages follow from its documents."""
    made = sample_manifest()
    digests = {"weights": "ab" * 32, "framework": framework_digest(), "hardware": digest_of(made.hardware)}
    spec = sample_spec(made)
    spec.goals = [Goal(metric="output_throughput", load="c8", against="competent", min_ratio=1.5)]
    spec.workload.loads = {name: Load(concurrency=int(name[1:])) for name in ("c4", "c8")}
    spec.workload.headline_load = "c8"
    spec.evaluation.loads = "all"
    manifest = replace(
        made, digests=digests, goals=goal_results(made.metrics, spec=spec),
        plan_id=digest_of({"spec": hashed_spec(spec), "digests": digests})[:16],
    )  # fmt: skip
    return package_sample(folder, manifest, spec=spec)


def write_journal(journal: Journal, manifest: Manifest) -> None:
    """What a run of the sample would have journalled."""
    journal.append("opened", {"target": manifest.target, "plan_id": manifest.plan_id})
    journal.append("tier", manifest.sandbox_tier)
    for entry in sample_rounds():
        record = {
            "number": entry.number, "outcome": entry.outcome, "reason": entry.reason, "seconds": entry.seconds,
            "attempts": min(entry.number, 1), "proposal": entry.proposal,
        }  # fmt: skip
        journal.append("round", {"number": entry.number, "record": record})
    passed = manifest.status == "certified"
    figures = {"accuracy": manifest.accuracy, "environment": manifest.environment}
    journal.append("certified", {"passed": passed, **figures})


def sample_golden() -> Golden:
    reply = GoldenReply(
        request_id="certification-7-0",
        load="c8",
        request={"request_id": "certification-7-0", "prompt": "nonce text", "num_prompt_tokens": 2},
        output={"token_ids": [5, 9], "text": "a b", "logprobs": []},
        distances={"margin": (0.0, 0.1)},
    )
    return Golden(seeds={"c8/0": 7}, replies=(reply,))


def write_workspace(root: Path) -> Path:
    files = {
        "service.yaml": 'argv: ["{python}", "-m", "runtime", "--model-dir", "{model_dir}", "--port", "{port}"]\n'
        'build: ["{python}", "-m", "runtime.build"]\nenv: {OMP_NUM_THREADS: "1"}\n',
        "README.md": "# runtime\n",
        "requirements.lock": "torch==2.13.0\nuvicorn==0.35.0\n",
        "runtime/__init__.py": "",
        "runtime/model.py": "HIDDEN = 64\n",
        "tests/test_runtime.py": "def test_it() -> None: ...\n",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def sample_contents(
    folder: Path, manifest: Manifest | None = None, *, workspace: Path | None = None, spec: Spec | None = None
) -> Contents:
    """Contents over a store (and, where none is given, a workspace) written into `folder`."""
    workspace = workspace or write_workspace(folder / "workspace")
    store = CheckpointStore(folder / "store.git")
    store.commit(workspace, parent=None, message="round 0", ref="run-1/r0")
    entries = sample_rounds()
    return Contents(
        manifest=manifest or sample_manifest(),
        spec=spec or sample_spec(manifest or sample_manifest()),
        plan=sample_plan(manifest or sample_manifest()),
        workspace=workspace,
        rounds=tuple(
            RoundRecord(entry=entry, verdict=Verdict(checks=("lengths",)), measurements={"pairs": [1.8]})
            for entry in entries
        ),
        golden=sample_golden(),
        checkpoints=store,
        run="run-1",
    )


def package_sample(folder: Path, manifest: Manifest | None = None, *, spec: Spec | None = None) -> Packaged:
    with Journal.open(folder / "journal.jsonl") as journal:
        write_journal(journal, manifest or sample_manifest())
        return package(sample_contents(folder, manifest, spec=spec), out_dir=folder / "artifacts", journal=journal)
