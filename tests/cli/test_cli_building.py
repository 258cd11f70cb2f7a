"""`vibeserve +target=...`: what reaches the build, and how sweeps end."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from vibeserve.cli.main import main
from vibeserve.errors import BudgetError
from vibeserve.progress import Progress
from vibeserve.spec import Spec


@dataclass(frozen=True, kw_only=True)
class Summary:
    target: str
    schema_version: int = 1

    def __str__(self) -> str:
        return f"built {self.target}"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Spec]:
    """Specs that reached the build; the build itself is replaced, a target of three rounds ends its budget."""
    specs: list[Spec] = []

    def run_target(spec: Spec, *, progress: Progress) -> Summary:
        specs.append(spec)
        progress.event("build", "begins")
        if spec.budget.rounds == 3:
            raise BudgetError("out of time")
        return Summary(target=spec.target.name)

    monkeypatch.setattr("vibeserve.build.run_target", run_target, raising=False)
    monkeypatch.chdir(tmp_path)
    return specs


Run = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*argv: str) -> tuple[int, list[str]]:
        code = main(list(argv))
        return code, capsys.readouterr().out.splitlines()

    return call


def test_a_target_is_composed_and_built(built: list[Spec], run: Run) -> None:
    code, lines = run("+target=tiny_cpu", "budget.rounds=1", "--require-goal")
    assert code == 0
    assert lines[-1] == "built tiny_cpu"
    (spec,) = built
    assert (spec.target.name, spec.budget.rounds, spec.require_goal) == ("tiny_cpu", 1, True)


def test_with_json_every_line_is_a_document(built: list[Spec], run: Run) -> None:
    code, lines = run("+target=tiny_cpu", "--json")
    assert code == 0
    documents = [json.loads(line) for line in lines]
    assert documents[0]["stage"] == "build"
    assert documents[-1] == {"target": "tiny_cpu", "schema_version": 1}


def test_a_typed_failure_is_its_exit_code(built: list[Spec], run: Run) -> None:
    assert run("+target=tiny_cpu", "budget.rounds=3")[0] == 4


def test_a_sweep_builds_every_job_and_ends_with_the_worst_code(built: list[Spec], run: Run) -> None:
    code, lines = run("-m", "+target=tiny_cpu,smollm2_cpu", "budget.rounds=3,1")
    assert code == 4
    assert [(spec.target.name, spec.budget.rounds) for spec in built] == [
        ("tiny_cpu", 3),
        ("tiny_cpu", 1),
        ("smollm2_cpu", 3),
        ("smollm2_cpu", 1),
    ]
    assert lines[-4:] == [
        "tiny_cpu: out of time",
        "tiny_cpu: done",
        "smollm2_cpu: out of time",
        "smollm2_cpu: done",
    ]


def test_hydras_own_questions_are_answered(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--cfg", "job", "+target=tiny_cpu", "-p", "budget"]) == 0
    assert "level: quick" in capfd.readouterr().out
