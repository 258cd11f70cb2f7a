"""`vibeserve check --deep` on the example that `init --template custom` writes, whole and broken."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from init_samples import Command

from vibeserve.cli.main import main

LIMIT = "abs_error/max: 0.004"


@pytest.fixture
def target(repository: Path, vibeserve: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of target `mine`, its limit set by hand."""
    monkeypatch.setenv("VIBESERVE_CACHE", str(tmp_path / "cache"))
    vibeserve("init", "mine", "--template", "custom", "--no-calibration")
    folder = repository / "targets" / "mine"
    change(folder / "target.yaml", "abs_error/max: 1.0e+09", LIMIT)
    return folder


def change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def deep(capsys: pytest.CaptureFixture[str], *, code: int) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["check", "mine", "--deep", "--json"]) == code
    (checked,) = json.loads(capsys.readouterr().out)["targets"]
    found: dict[str, Any] = checked["deep"]
    return found


def states(document: dict[str, Any]) -> dict[str, bool]:
    return {step["name"]: step["is_ok"] for step in document["steps"]}


@pytest.mark.slow
def test_every_part_of_the_example_works(target: Path, vibeserve: Command) -> None:
    lines = vibeserve("check", "mine", "--deep").splitlines()
    assert lines[0] == "mine: ok" and lines[-2].startswith("mine: all parts work (")
    assert lines[-1] == "next: vibeserve plan mine"
    parts = [line.split()[:2] for line in lines[1:-1] if line.startswith("  ") and not line.startswith("   ")]
    assert parts == [[name, "ok"] for name in ("model", "reference", "scaffold", "replies", "faults")]
    assert any("half_the_text (wrong): refused" in line for line in lines)
    assert any("bfloat16 (noisy): passed" in line for line in lines)


@pytest.mark.slow
def test_a_scaffold_that_answers_something_else(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = target / "scaffold" / "runtime" / "model.py"
    change(model, "        return found\n", "        return found[::-1]\n")
    document = deep(capsys, code=3)
    assert states(document) == {"model": True, "reference": True, "scaffold": True, "replies": False, "faults": True}
    (replies,) = [step for step in document["steps"] if step["name"] == "replies"]
    assert any("accuracy/" in line and "abs_error" in line for line in replies["details"])


@pytest.mark.slow
def test_a_scaffold_that_does_not_start(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(target / "scaffold" / "runtime" / "api.py", 'PATH = "/v1/features"\n', 'PATH = "/v1/features"\n1 / 0\n')
    document = deep(capsys, code=3)
    assert document["not_run"] == ["replies"]
    (scaffold,) = [step for step in document["steps"] if step["name"] == "scaffold"]
    assert not scaffold["is_ok"] and "start/died" in scaffold["details"][0]
    assert scaffold["details"][-1].endswith("ZeroDivisionError: division by zero")


@pytest.mark.slow
def test_a_limit_that_is_too_wide(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(target / "target.yaml", LIMIT, "abs_error/max: 0.5")
    document = deep(capsys, code=3)
    (faults,) = [step for step in document["steps"] if step["name"] == "faults"]
    assert not faults["is_ok"] and "half_the_text" in faults["text"] and faults["text"].endswith(": not as declared")


@pytest.mark.slow
def test_a_reference_that_fails_is_named_with_its_line(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(target / "reference.py", '        return self.shares(request.payload["input"])', "        return 1 / 0")
    document = deep(capsys, code=3)
    assert document["not_run"] == ["scaffold", "replies", "faults"]
    step = document["steps"][-1]
    assert step["name"] == "reference" and not step["is_ok"]
    assert "reference.py:" in step["text"] and step["text"].endswith("ZeroDivisionError: division by zero")


def test_what_is_not_valid_is_not_tried(target: Path, vibeserve: Command) -> None:
    change(target / "target.yaml", "metric: texts_per_s", "metric: text_per_s")
    assert main(["check", "mine", "--deep"]) == 2


def test_a_file_that_lacks_what_the_contract_asks_for(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(target / "check.py", "def compare(", "def compared(")
    assert main(["check", "mine"]) == 2
    printed = capsys.readouterr().out
    assert "check.py: does not define compare; the contract asks for: LIMITS, compare" in printed


def test_a_file_that_does_not_import(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (target / "workload.py").write_text("import nowhere\n")
    assert main(["check", "mine", "--deep"]) == 2
    assert "workload.py:1: ModuleNotFoundError: No module named 'nowhere'" in capsys.readouterr().out


def test_too_few_faults(target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (target / "faults.py").read_text()
    text = text.replace('    Fault(name="backwards", is_wrong=True, make=backwards),\n', "")
    (target / "faults.py").write_text(text)
    assert main(["check", "mine"]) == 2
    assert "FAULTS: 2 wrong outputs, 1 noisy ones; needed: at least 3" in capsys.readouterr().out
