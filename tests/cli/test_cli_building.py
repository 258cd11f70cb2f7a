"""`vibeserve +target=...`: what reaches the build, and how it ends."""

from __future__ import annotations

import json
import os
import signal
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


WORDS: list[list[str]] = []
"""beside the target, of each build"""


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Spec]:
    """Specs that reached the build; the build itself is replaced, a target of three rounds ends its budget."""
    specs: list[Spec] = []
    WORDS.clear()

    def run_target(spec: Spec, *, progress: Progress, overrides: list[str]) -> Summary:
        specs.append(spec)
        WORDS.append(overrides)
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
    assert WORDS == [["budget.rounds=1", "require_goal=true"]], "as they were typed, the flag as what it stands for"


def test_with_json_every_line_is_a_document(built: list[Spec], run: Run) -> None:
    code, lines = run("+target=tiny_cpu", "--json")
    assert code == 0
    documents = [json.loads(line) for line in lines]
    assert documents[0]["stage"] == "build"
    assert documents[-1] == {"target": "tiny_cpu", "schema_version": 1}


def test_a_typed_failure_is_its_exit_code(built: list[Spec], run: Run) -> None:
    assert run("+target=tiny_cpu", "budget.rounds=3")[0] == 4


def test_a_sweep_is_handed_over_with_what_the_flags_stand_for(
    built: list[Spec], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[tuple[list[str], bool]] = []

    def run_sweep(overrides: list[str], *, is_json: bool, say: Callable[[str], None]) -> int:
        swept.append((overrides, is_json))
        say("a row")
        return 4

    monkeypatch.setattr("vibeserve.sweeps.run_sweep", run_sweep)
    assert run("-m", "+target=tiny_cpu", "search=greedy,random", "--require-goal", "--json") == (4, ["a row"])
    assert swept == [(["-m", "+target=tiny_cpu", "search=greedy,random", "require_goal=true"], True)]
    assert built == []


def test_sigterm_ends_a_build_as_an_interrupt_does(
    built: list[Spec], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cleaned: list[str] = []

    def run_target(spec: Spec, *, progress: Progress, overrides: list[str]) -> Summary:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            return Summary(target="never")
        finally:
            # a second one does not break into the clean-up
            os.kill(os.getpid(), signal.SIGTERM)
            cleaned.append("servers stopped")

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("vibeserve.build.run_target", run_target)
    assert main(["+target=tiny_cpu"]) == 130
    assert capsys.readouterr().err.startswith("vibeserve: interrupted\nnext: start the same command again; ")
    assert cleaned == ["servers stopped"]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("more", [[], ["-m", "search=greedy,random"]])
def test_a_target_needs_its_plus_in_a_run_and_in_a_sweep(
    more: list[str], built: list[Spec], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["target=tiny_cpu", *more]) == 2
    captured = capsys.readouterr()
    assert (captured.out, built) == ("", [])
    assert "'target=tiny_cpu' lacks its plus: a target is added to the configuration" in captured.err


def test_an_option_that_a_sweep_does_not_have_is_refused(run: Run) -> None:
    assert run("-m", "+target=tiny_cpu", "--config-dir=x")[0] == 2


def test_hydras_own_questions_are_answered(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--cfg", "job", "+target=tiny_cpu", "-p", "budget"]) == 0
    assert "level: quick" in capfd.readouterr().out
