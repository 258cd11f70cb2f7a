"""Files that a target's folder lacks or that are faulty, and places of what only they can tell."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from vibeserve.cli.main import main
from vibeserve.config import check_file
from vibeserve.core.paths import data_dir

TARGET = """\
defaults:
  - override /hardware: cpu
  - override /baseline: scaffold
model: {id: mini, architecture: none, modality: custom, dtype: float32, source: {kind: folder, path: model}}
workload: {kind: custom, loads: {c1: {concurrency: 1}}, headline_load: c1, options: {words_min: 8, words_max: 48}}
goals:
  - {metric: texts_per_s, min_ratio: 1.5, against: naive}
evaluation: {tolerances: {limits: {abs_error/max: 0.1}}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A custom target with all its files, as `init --template custom` writes it."""
    place = tmp_path / "targets" / "mini"
    shutil.copytree(data_dir("templates") / "target" / "custom", place)
    (place / "target.yaml").write_text(TARGET)
    monkeypatch.chdir(tmp_path)
    return place


def errors_of(folder: Path) -> list[str]:
    return list(check_file(folder / "target.yaml", cwd=folder.parents[1]).errors)


def test_a_whole_folder_is_accepted(folder: Path) -> None:
    assert errors_of(folder) == []


@pytest.mark.parametrize("absent", [("faults",), ("workload", "check")])
def test_absent_files_are_told_and_nothing_that_follows_from_them(folder: Path, absent: tuple[str, ...]) -> None:
    for name in absent:
        (folder / f"{name}.py").unlink()
    names = ", ".join(f"{name}.py" for name in absent)
    assert errors_of(folder) == [
        f"targets/mini/target.yaml:4:39: model.modality: {names} not found in {folder}; a custom target has "
        "reference.py, workload.py, check.py and faults.py beside target.yaml (docs/contract.md)"
    ]


def test_an_absent_scaffold_is_told(folder: Path) -> None:
    shutil.rmtree(folder / "scaffold")
    (problem,) = errors_of(folder)
    assert problem.startswith("the target's scaffold is not valid; ")
    assert "scaffold/runtime/model.py: missing; a module with load" in problem


def test_a_misspelt_limit_is_told_where_it_stands(folder: Path) -> None:
    (folder / "target.yaml").write_text(TARGET.replace("abs_error/", "abs_eror/"))
    assert errors_of(folder) == [
        "targets/mini/target.yaml:8:36: evaluation.tolerances.limits.abs_eror/max: check.py has no distance "
        "'abs_eror'; did you mean 'abs_error'?"
    ]


def test_a_distance_whose_name_is_worked_out_is_left_alone(folder: Path) -> None:
    check = folder / "check.py"
    check.write_text(check.read_text().replace('name="abs_error"', 'name="abs_" + "error"'))
    (folder / "target.yaml").write_text(TARGET.replace("abs_error/", "abs_eror/"))
    assert errors_of(folder) == []


def test_plan_refuses_a_file_that_cannot_be_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check = folder / "check.py"
    num_lines = len(check.read_text().splitlines())
    check.write_text(check.read_text() + "def (\n")
    assert main(["plan", "mini"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "vibeserve: target 'mini' is not valid",
        f"  {check}:{num_lines + 1}: SyntaxError: invalid syntax (check.py, line {num_lines + 1})",
        "next: docs/contract.md",
    ]


def test_a_checkout_of_vibeserve_may_hold_the_options_that_ship(tmp_path: Path) -> None:
    """The installed one runs in a clone of the same version: what both say alike hides nothing."""
    for name in ("conf", "targets"):
        shutil.copytree(data_dir(name), tmp_path / name)
    target = tmp_path / "targets" / "tiny_cpu.yaml"
    assert list(check_file(target, cwd=tmp_path).errors) == []
    hidden = tmp_path / "conf" / "model" / "tiny_llama.yaml"
    hidden.write_text(hidden.read_text() + "# of another version\n")
    (problem,) = check_file(target, cwd=tmp_path).errors
    assert problem.endswith(
        "conf/model/tiny_llama.yaml: model 'tiny_llama' ships with VibeServe and hides this file; give it another name"
    )
