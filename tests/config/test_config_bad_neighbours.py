"""One broken target file must not hide the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from vibeserve.config import check_target, list_targets

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("selfi", "defaults:\n  - selfi\n", "its `defaults` lead back to itself"),
        ("alias", "a: &a [*a]\n", "alias.yaml: an alias of it contains itself"),
        (
            "wrong",
            "defaults:\n  - tiny_cpu\n  - _self_\n"
            "goals: [{metric: output_throughput, load: c4, min_ratio: .nan, against: naive}]\n",
            "goals[0].min_ratio: nan is not above 0 and finite",
        ),
    ],
)
def test_it_is_reported_and_the_others_are_checked(tmp_path: Path, name: str, text: str, expected: str) -> None:
    folder = tmp_path / "targets"
    folder.mkdir()
    (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    checks = {target.name: check_target(target, cwd=tmp_path) for target in list_targets(tmp_path)}
    assert expected in checks[name].errors[0]
    assert checks["tiny_cpu"].is_ok


@pytest.mark.parametrize("name", ["nan", "1", "true"])
def test_a_name_that_looks_like_a_number_is_a_name(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "targets"
    folder.mkdir()
    (folder / f"{name}.yaml").write_text((ROOT / "targets" / "tiny_cpu.yaml").read_text(), encoding="utf-8")
    (target,) = [each for each in list_targets(tmp_path) if each.name == name]
    assert check_target(target, cwd=tmp_path).errors == ()
