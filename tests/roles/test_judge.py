"""Screening with scripted builds, starts and probes: what refuses, and that nothing is left running."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from loop_fakes import FakeServer, Library, LibrarySeed
from numbers_target import write_target

from vibeserve.core.nouns import Refusal
from vibeserve.core.spent import Spent
from vibeserve.errors import ContractError, InfraError, RefusedError, ServerError
from vibeserve.modalities import bundle_ref, open_bundle
from vibeserve.modalities.probes import ProbeCheck, ProbeReport
from vibeserve.modalities.text import PROBES
from vibeserve.roles import judge as judge_module
from vibeserve.roles.judge import SCREEN_CHECKS, Judge
from vibeserve.sandbox import Finished, Resources
from vibeserve.spec import Model, Sandbox, Spec, TargetInfo, Tier, Workload


@dataclass
class FakeBench:
    run_dir: Path
    build_error: Exception | None = None
    serve_error: Exception | None = None
    server: Any = field(default_factory=lambda: FakeServer("r01a1"))
    left: list[Refusal] = field(default_factory=list)
    resources: Resources = field(default_factory=Resources)
    spent: Spent = field(default_factory=Spent)

    def __post_init__(self) -> None:
        model = self.run_dir / "model"
        model.mkdir(parents=True)
        self.model = SimpleNamespace(path=model)
        self.scaffold = self.run_dir / "scaffold"
        (self.scaffold / "tests").mkdir(parents=True)
        (self.scaffold / "tests" / "test_of_the_scaffold.py").write_text("", encoding="utf-8")
        self.server.process = None
        spec = Spec(model=Model(id="tiny", architecture="llama"), workload=Workload(kind="chat"))
        self.plan = SimpleNamespace(spec=spec, client_cpus=(0,))
        self.bundle = open_bundle(bundle_ref(spec, model_dir=model))
        self.host = SimpleNamespace(join_argv=lambda *_, **__: [], probe=lambda: SimpleNamespace(num_cpus=1))

    def untidiness(self, name: str) -> list[Refusal]:
        return self.left

    def build(self, workspace: Path) -> None:
        if self.build_error:
            raise self.build_error

    def serve(self, workspace: Path, *, name: str) -> Any:
        if self.serve_error:
            raise self.serve_error
        return self.server


@pytest.fixture
def bench(tmp_path: Path) -> FakeBench:
    return FakeBench(tmp_path / "run")


@pytest.fixture
def judge(bench: FakeBench, monkeypatch: pytest.MonkeyPatch) -> Judge:
    """All probes pass unless a test says otherwise."""
    answer_probes(monkeypatch, ProbeReport(checks=tuple(ProbeCheck(name=name, ok=True) for name in PROBES.checks)))
    return Judge(bench)  # type: ignore[arg-type]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    LibrarySeed(Library(tmp_path / "library")).materialise(folder)
    return folder


def answer_probes(monkeypatch: pytest.MonkeyPatch, answer: ProbeReport | Exception) -> None:
    def probe(*_: Any, **__: Any) -> ProbeReport:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(judge_module, "probe_server", probe)


def test_what_a_probe_cannot_look_at_is_neither_a_pass_nor_a_refusal(
    judge: Judge, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "chat: the model has no chat template"
    checks = [ProbeCheck(name=name, ok=True, not_run=why if "chat" in name else "") for name in PROBES.checks]
    answer_probes(monkeypatch, ProbeReport(checks=tuple(checks)))
    screening = judge.screen(workspace, name="r01a1", seed=1, is_thorough=True)
    assert (screening.refusals, screening.not_run) == ((), (why,))


def test_a_candidate_that_passes_is_up_afterwards(judge: Judge, bench: FakeBench, workspace: Path) -> None:
    screening = judge.screen(workspace, name="r01a1", seed=1)
    assert (screening.refusals, screening.checks, screening.server) == ((), SCREEN_CHECKS, bench.server)
    assert bench.server.num_stops == 0


def test_the_scan_refuses_before_anything_runs(judge: Judge, bench: FakeBench, workspace: Path) -> None:
    bench.build_error = AssertionError("must not be reached")
    (workspace / "runtime/linear.py").write_text("import vllm\n")
    screening = judge.screen(workspace, name="r01a1", seed=1)
    assert screening.server is None
    assert screening.checks == ("scan",)
    assert [refusal.gate for refusal in screening.refusals] == ["scan"]
    assert str(screening.refusals[0].file).startswith("runtime/linear.py")


@pytest.mark.parametrize("gate", ["build", "start"])
def test_a_failed_build_or_start_is_a_typed_refusal(judge: Judge, bench: FakeBench, workspace: Path, gate: str) -> None:
    error = ServerError("r01a1", outcome="timed_out", detail="not ready in 5 s", log_tail="loading weights")
    bench.build_error, bench.serve_error = (error, None) if gate == "build" else (None, error)
    (refusal,) = judge.screen(workspace, name="r01a1", seed=1).refusals
    assert (refusal.gate, refusal.reason_class) == (gate, "timed_out")
    assert "loading weights" in refusal.text


def test_a_refused_service_file_keeps_its_reasons_and_never_none(
    judge: Judge, bench: FakeBench, workspace: Path
) -> None:
    typed = Refusal(gate="scan", reason_class="path_program", text="argv names /bin/sh", file="service.yaml")
    bench.build_error = RefusedError("service.yaml is refused", reasons=[typed])
    assert judge.screen(workspace, name="r01a1", seed=1).refusals == (typed,)
    bench.build_error = RefusedError("service.yaml is refused")
    (refusal,) = judge.screen(workspace, name="r01a1", seed=1).refusals
    assert refusal.text == "service.yaml is refused"


def test_a_failed_probe_refuses_and_the_server_is_stopped(
    judge: Judge, bench: FakeBench, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = tuple(ProbeCheck(name=name, ok=name != "chat", detail="HTTP 404") for name in PROBES.checks)
    answer_probes(monkeypatch, ProbeReport(checks=checks))
    screening = judge.screen(workspace, name="r01a1", seed=1)
    assert (screening.server, screening.checks, bench.server.num_stops) == (None, SCREEN_CHECKS, 1)
    assert [refusal.gate for refusal in screening.refusals] == ["probe"]
    assert "HTTP 404" in screening.refusals[0].text


def test_probes_that_cannot_run_are_the_machines_doing_and_the_server_is_stopped(
    judge: Judge, bench: FakeBench, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_probes(monkeypatch, InfraError("the probes could not run (exit 1)"))
    with pytest.raises(InfraError, match="could not run"):
        judge.screen(workspace, name="r01a1", seed=1)
    assert bench.server.num_stops == 1


def test_a_candidate_that_dies_under_the_probes_is_refused(
    judge: Judge, bench: FakeBench, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.server.status = -11
    answer_probes(monkeypatch, InfraError("the probes could not run (exit 1)"))
    (refusal,) = judge.screen(workspace, name="r01a1", seed=1).refusals
    assert (refusal.gate, refusal.reason_class) == ("probe", "died")
    assert "the last line of the log" in refusal.text


def test_a_file_of_the_target_that_fails_is_nobodys_refusal_and_the_server_is_stopped(
    judge: Judge, bench: FakeBench, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_probes(monkeypatch, ContractError("workload.py:3: ZeroDivisionError: division by zero"))
    with pytest.raises(ContractError, match=r"workload\.py:3"):
        judge.screen(workspace, name="r01a1", seed=1)
    assert bench.server.num_stops == 1


# -- the runtime's own tests


def own_tests_of(bench: FakeBench, monkeypatch: pytest.MonkeyPatch, done: Finished) -> tuple[Any, list[Any]]:
    """Refusals of a run of the tests that ended as `done`, and what was run."""
    ran: list[Any] = []

    def run(argv: list[str], *, wall: Any, log: Path, timeout_s: float) -> Finished:
        ran.append((argv, wall))
        return done

    bench.host.run = run
    bench.tier = Tier.B
    bench.plan.engine_cpus, bench.plan.threads = (0,), 1
    bench.plan.spec.sandbox = Sandbox()
    tiny = SimpleNamespace(path=bench.run_dir / "tiny")
    monkeypatch.setattr(judge_module, "materialise", lambda *_, **__: tiny)
    return Judge(bench), ran  # type: ignore[arg-type]


def test_own_tests_run_behind_the_wall_without_the_framework(
    bench: FakeBench, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, ran = own_tests_of(bench, monkeypatch, Finished(returncode=0, timed_out=False, seconds=1.0, log_tail=""))
    assert judge.own_tests(workspace) == []
    ((argv, wall),) = ran
    assert argv[1:3] == ["-m", "pytest"]
    tested = bench.run_dir / "own_tests" / workspace.name
    assert wall.read_only == (tested, bench.run_dir / "tiny")
    # nobody passes by shipping no tests
    assert (tested / "tests" / "test_of_the_scaffold.py").is_file()
    assert "vibeserve" in wall.hidden_modules
    assert wall.env["VIBESERVE_MODEL_DIR"] == str(bench.run_dir / "tiny")


def test_a_model_of_another_architecture_is_tested_on_itself(
    bench: FakeBench, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, ran = own_tests_of(bench, monkeypatch, Finished(returncode=0, timed_out=False, seconds=1.0, log_tail=""))
    bench.plan.spec.model.architecture = "mamba2"
    assert judge.own_tests(workspace) == []
    assert ran[0][1].env["VIBESERVE_MODEL_DIR"] == str(bench.model.path)


@pytest.mark.parametrize("architecture", ["olmo_hybrid", "qwen3_next"])
def test_a_hybrid_model_is_tested_on_two_layers_of_its_own(
    bench: FakeBench, workspace: Path, monkeypatch: pytest.MonkeyPatch, architecture: str
) -> None:
    judge, ran = own_tests_of(bench, monkeypatch, Finished(returncode=0, timed_out=False, seconds=1.0, log_tail=""))
    asked: list[Model] = []

    def materialise(model: Model, **_: Any) -> Any:
        asked.append(model)
        return SimpleNamespace(path=bench.run_dir / model.id)

    monkeypatch.setattr(judge_module, "materialise", materialise)
    bench.plan.spec.model.architecture = architecture
    assert judge.own_tests(workspace) == []
    assert [(model.id, model.architecture) for model in asked] == [(f"tiny_{architecture}", architecture)]
    assert ran[0][1].env["VIBESERVE_MODEL_DIR"] == str(bench.run_dir / f"tiny_{architecture}")


@pytest.mark.parametrize(("timed_out", "reason_class"), [(False, "failed"), (True, "timed_out")])
def test_own_tests_that_do_not_pass_refuse(
    bench: FakeBench, workspace: Path, monkeypatch: pytest.MonkeyPatch, timed_out: bool, reason_class: str
) -> None:
    done = Finished(returncode=1, timed_out=timed_out, seconds=1.0, log_tail="1 failed in 0.1 s")
    judge, _ = own_tests_of(bench, monkeypatch, done)
    assert judge.own_tests(workspace) == [
        Refusal(gate="own_tests", reason_class=reason_class, text="1 failed in 0.1 s")
    ]


def test_a_target_of_the_users_own_with_that_name_has_no_say(
    bench: FakeBench, workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "targets").mkdir()
    (tmp_path / "targets/tiny_cpu.yaml").write_text("this: is no target\n")
    monkeypatch.chdir(tmp_path)
    judge, _ = own_tests_of(bench, monkeypatch, Finished(returncode=0, timed_out=False, seconds=1.0, log_tail=""))
    assert judge.own_tests(workspace) == []


# -- the verdict


def classes(judge: Judge, workspace: Path, *, before: Any = None, added: tuple[Refusal, ...] = ()) -> set[str]:
    verdict, _ = judge.verdict(
        [], workspace=workspace, before=before or judge.snapshot(workspace), seed=0, max_replies=0, name="r01a1",
        added=added,
    )  # fmt: skip
    assert not verdict.passed
    return {refusal.reason_class for refusal in verdict.refusals}


def test_without_evidence_nothing_passes(judge: Judge, workspace: Path) -> None:
    assert classes(judge, workspace) == {"missing_scores", "missing_replies"}


def test_a_file_that_changed_while_it_was_measured_refuses(judge: Judge, bench: FakeBench, workspace: Path) -> None:
    before = judge.snapshot(workspace)
    assert "digest_mismatch" not in classes(judge, workspace, before=before)
    (workspace / "runtime/linear.py").write_text("x = 1\n")
    assert "digest_mismatch" in classes(judge, workspace, before=before)
    before = judge.snapshot(workspace)
    (bench.model.path / "planted.bin").write_bytes(b"1")
    assert "digest_mismatch" in classes(judge, workspace, before=before)


def test_a_contract_that_changed_while_it_was_measured_refuses(
    judge: Judge, bench: FakeBench, workspace: Path, tmp_path: Path
) -> None:
    folder = write_target(tmp_path / "numbers")
    bench.plan.spec.target = TargetInfo(name="numbers", dir=str(folder))
    before = judge.snapshot(workspace)
    (folder / "check.py").write_text("LIMITS = ()\n", encoding="utf-8")
    verdict, _ = judge.verdict([], workspace=workspace, before=before, seed=0, max_replies=0, name="r01a1")
    (found,) = [refusal for refusal in verdict.refusals if refusal.gate == "integrity"]
    assert (found.reason_class, found.text) == ("digest_mismatch", "check.py changed while it was measured")


def test_an_agents_refusal_is_one_of_the_verdict(judge: Judge, workspace: Path) -> None:
    added = (Refusal(gate="review", reason_class="unclear", text="no comment"),)
    assert "unclear" in classes(judge, workspace, added=added)


def test_what_a_server_left_behind_is_a_refusal(judge: Judge, bench: FakeBench, workspace: Path) -> None:
    assert "stray_process" not in classes(judge, workspace)
    bench.left = [Refusal(gate="cleanliness", reason_class="stray_process", text="1 process left its tree")]
    assert "stray_process" in classes(judge, workspace)
