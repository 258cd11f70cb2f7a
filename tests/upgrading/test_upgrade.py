"""`vibeserve upgrade`: what differs, what is refused before anything starts, what is told of the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from artifact_samples import sample_contents, sample_manifest

from vibeserve.artifact import package
from vibeserve.build.runs import run_folder
from vibeserve.build.target import RunSummary
from vibeserve.cli.main import main
from vibeserve.config import compose_spec
from vibeserve.core.documents import digest_of
from vibeserve.core.paths import data_dir
from vibeserve.hardware import identity, probe
from vibeserve.journal import Journal
from vibeserve.plan import plan_document
from vibeserve.plan.unmeasured import compile_unmeasured
from vibeserve.planning import BACKLOG, Change, ItemState
from vibeserve.results import goal_results
from vibeserve.spec import ClockKind, Spec
from vibeserve.upgrading import upgrade as upgrading


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "project/targets").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setattr("vibeserve.plan.digests.framework_digest", lambda: "f" * 64)
    return tmp_path / "project"


@pytest.fixture
def artifact(project: Path) -> Path:
    """A sample run of tiny_cpu on this very machine."""
    return make_artifact(project)


def make_artifact(project: Path, *, change: Callable[[Spec], None] = lambda spec: None) -> Path:
    asked = compose_spec(["+target=tiny_cpu", "sandbox=none"], cwd=data_dir("targets").parent)
    asked.evaluation = replace(asked.evaluation, clock=ClockKind.real, window_scale=1.0, loads="all")
    change(asked)
    facts = probe()
    plan = compile_unmeasured(asked, facts=facts)
    made = sample_manifest(target="tiny_cpu", metrics=(), authorship=())
    digests = {**plan.digests, "hardware": digest_of(identity(facts))}
    made = replace(
        made, plan_id=plan.plan_id, hardware=identity(facts), goals=goal_results((), spec=plan.spec), digests=digests,
        provenance={"buildDefinition": {"resolvedDependencies": []}}, not_run=(),
    )  # fmt: skip
    folder = project.parent / "run"
    with Journal.open(folder / "journal.jsonl") as journal:
        journal.append("opened", {"target": "tiny_cpu", "plan_id": made.plan_id})
        journal.append("tier", made.sandbox_tier)
        for entry in made.rounds:
            record = {
                "number": entry.number, "outcome": entry.outcome, "reason": entry.reason, "seconds": entry.seconds,
                "attempts": min(entry.number, 1), "proposal": entry.proposal,
            }  # fmt: skip
            journal.append("round", {"record": record})
        idea = Change(
            item="b1", state=ItemState.ABANDONED, title="pack the weights", why="measured: 0.9x", who="planner", round=1
        )
        journal.append(BACKLOG, idea)
        journal.append("certified", {"passed": True, "accuracy": made.accuracy, "environment": None})
        contents = replace(sample_contents(folder, made, spec=plan.spec), plan=plan_document(plan))
        return package(contents, out_dir=project / "artifacts", journal=journal).path


def seen(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_only_what_is_asked_for_differs(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(artifact), "model.source.seed=1", "budget.rounds=1", "--diff"]
    assert main(["upgrade", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"upgrade     tiny_cpu {artifact.name} (certified) -> ")
    assert "changed     model.source.seed: 0 -> 1" in lines and "changed     budget.rounds: 2 -> 1" in lines
    assert any(line.startswith("changed     inputs.model: ") for line in lines)
    assert main(["upgrade", *words, "--json"]) == 0
    document = seen(capsys)
    assert (document["kind"], document["outcome"], document["result"]) == ("upgrade", "asked", None)
    names = {change["name"] for change in document["changes"]}
    assert {"model.source.seed", "budget.rounds", "inputs.model"} <= names
    assert not [name for name in names if name.startswith(("workload", "goals", "machine", "baseline", "evaluation"))]


def test_where_nothing_differs_nothing_is_run(
    artifact: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrading, "run_target", lambda *given, **more: pytest.fail("it was run"))
    assert main(["upgrade", str(artifact), "sandbox=none", "--json"]) == 0
    document = seen(capsys)
    assert (document["outcome"], document["changes"]) == ("unchanged", []), document["changes"]


def test_an_artifact_that_does_not_hold_is_refused_before_anything_starts(
    artifact: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (artifact / "runtime/runtime/model.py").write_text("HIDDEN = 65\n")
    assert main(["upgrade", str(artifact), "model.source.seed=1"]) == 3
    err = capsys.readouterr().err
    assert "refused: integrity/digest_mismatch: runtime/runtime/model.py was changed" in err
    assert f"next: vibeserve verify {artifact} --level bytes" in err


def test_an_artifact_that_judges_itself_mildly_is_refused(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def loosen(spec: Spec) -> None:
        spec.evaluation.tolerances.top1_agreement_min = 0.1

    artifact = make_artifact(project, change=loosen)
    assert main(["upgrade", str(artifact), "model.source.seed=1"]) == 3
    assert "top1_agreement_min is 0.1, milder than 0.97" in capsys.readouterr().err


def test_the_digest_of_its_origin_can_be_asked_for(artifact: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["upgrade", str(artifact), "model.source.seed=1", "--expect", "0" * 64]) == 3
    assert "integrity/other_origin" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["model.source.sed=1"], "model.source.sed=1: "),
        (["hardware=nothing"], "hardware=nothing: "),
        (["search.patience=0"], "search.patience: 0 is below 1"),
        (["hardware.engine_threads=999"], "hardware.engine_threads: 999 is above"),
        (["+target=smollm2_cpu"], "the artifact says which target it is of"),
    ],
)
def test_what_does_not_compose_or_compile_ends_with_2(
    artifact: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    assert main(["upgrade", str(artifact), *words]) == 2
    assert told in capsys.readouterr().err


def test_what_is_no_artifact_ends_with_2(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["upgrade", "artifacts/none"]) == 2
    assert "is no artifact: there is no such folder" in capsys.readouterr().err


class ScriptedRun:
    """In place of `run_target`: journals what a run would, and leaves a summary."""

    def __init__(self, project: Path, *, position: int, num_rounds: int) -> None:
        self.project, self.position, self.num_rounds = project, position, num_rounds
        self.spec: Spec | None = None

    def __call__(self, spec: Spec, *, progress: object) -> RunSummary:
        self.spec = spec
        plan = compile_unmeasured(spec, facts=probe())
        refused = ["seed:a: the seed is refused: accuracy/x: y"] * self.position
        with Journal.open(run_folder(self.project, plan) / "journal.jsonl") as journal:
            journal.append("inherited", {"reopened": ["pack the weights (model.source.seed was 0, is 1)"]})
            journal.append("seeded", {"origin": "seed:tiny_cpu/p@c", "position": self.position, "refused": refused})
        manifest = sample_manifest(target="tiny_cpu", plan_id=plan.plan_id)
        manifest = replace(manifest, rounds=manifest.rounds[: self.num_rounds + 1])
        return RunSummary(artifact="artifacts/tiny_cpu/new", latest="artifacts/tiny_cpu/latest", manifest=manifest)


@pytest.mark.parametrize(
    ("position", "num_rounds", "outcome", "told"),
    [
        (0, 0, "reused", "reused      seed:tiny_cpu/p@c passes every gate as it is; no agent was asked"),
        (1, 2, "searched", "searched    from seed:tiny_cpu/p@c: 2 rounds, 0 calls of agents"),
    ],
)
def test_the_outcome_says_whether_it_was_reused(
    artifact: Path, project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, position: int,
    num_rounds: int, outcome: str, told: str,
) -> None:  # fmt: skip
    run = ScriptedRun(project, position=position, num_rounds=num_rounds)
    monkeypatch.setattr(upgrading, "run_target", run)
    assert main(["upgrade", str(artifact), "model.source.seed=1"]) == 0
    out = capsys.readouterr().out
    assert told in out.splitlines()
    assert "reopened    pack the weights (model.source.seed was 0, is 1)" in out
    assert ("refused     seed:a: the seed is refused" in out) is (position > 0)
    assert run.spec is not None and run.spec.seed.kind == "artifact" and run.spec.seed.path == str(artifact)
    assert run.spec.seed.search.value == "if_refused"
    assert main(["upgrade", str(artifact), "model.source.seed=1", "--json"]) == 0
    document = seen(capsys)
    assert (document["outcome"], document["rounds"], document["agent_calls"]) == (outcome, num_rounds, 0)
    assert document["plan_before"] == artifact.name and document["result"]["artifact"] == "artifacts/tiny_cpu/new"
