"""Sweeps are Hydra's; what can be refused before the first job starts, is."""

from __future__ import annotations

from pathlib import Path

import pytest

from vibeserve.config.sweep import is_for_hydra, refuse_wrong_jobs, run_hydra
from vibeserve.errors import SpecError


def test_sweeps_and_questions_go_to_hydra_and_nothing_else() -> None:
    assert is_for_hydra(["-m", "+target=a,b"])
    assert is_for_hydra(["+target=a", "hydra.mode=MULTIRUN"])
    assert is_for_hydra(["--cfg", "job"])
    assert not is_for_hydra(["+target=a", "budget=smoke"])


def test_all_faults_of_all_jobs_are_told_before_anything_runs() -> None:
    with pytest.raises(SpecError) as caught:
        refuse_wrong_jobs(["-m", "+target=tiny_cpu,nope", "budget.attempts=0,1"])
    text = str(caught.value)
    assert "none was started" in text
    assert "+target=tiny_cpu budget.attempts=0: target 'tiny_cpu' cannot be run as declared" in text
    assert "+target=nope budget.attempts=1: no target 'nope'" in text
    assert "+target=tiny_cpu budget.attempts=1" not in text


def test_a_sweep_without_target_lists_the_targets() -> None:
    with pytest.raises(SpecError, match="no target given"):
        refuse_wrong_jobs(["-m", "budget=smoke,small"])


def test_a_correct_sweep_passes() -> None:
    refuse_wrong_jobs(["-m", "+target=tiny_cpu", "budget=smoke,small"])


def test_hydra_runs_every_combination(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[tuple[str, str, int]] = []
    code = run_hydra(
        ["-m", "+target=tiny_cpu,smollm2_cpu", "budget.rounds=1,2"],
        folder=tmp_path / "sweep",
        job=lambda config: seen.append((config.target.name, config.model.id, config.budget.rounds)),
    )
    assert code == 0
    assert [(name, rounds) for name, _, rounds in seen] == [
        ("tiny_cpu", 1),
        ("tiny_cpu", 2),
        ("smollm2_cpu", 1),
        ("smollm2_cpu", 2),
    ]
    assert seen[2][1] == "HuggingFaceTB/SmolLM2-135M-Instruct"
