"""Sweeps are Hydra's; what can be refused before the first job starts, is."""

from __future__ import annotations

from pathlib import Path

import pytest

from vibeserve.config.sweep import (
    check_launch,
    is_question,
    is_sweep,
    launch_jobs,
    launcher_of,
    list_jobs,
    refuse_wrong_jobs,
    runs_here,
)
from vibeserve.errors import SpecError


def test_sweeps_and_questions_are_told_from_builds() -> None:
    assert is_sweep(["-m", "+target=a,b"])
    assert is_sweep(["+target=a", "hydra.mode=MULTIRUN"])
    assert is_question(["--cfg", "job"])
    assert not is_sweep(["+target=a", "budget=smoke"])
    assert not is_question(["+target=a", "budget=smoke"])


def test_jobs_are_every_combination_in_hydras_order_without_what_concerns_the_launch() -> None:
    jobs = list_jobs(["+target=a,b", "hydra/launcher=joblib", "search=greedy,random", "hydra.launcher.n_jobs=2"])
    assert jobs == [
        ("+target=a", "search=greedy"), ("+target=a", "search=random"),
        ("+target=b", "search=greedy"), ("+target=b", "search=random"),
    ]  # fmt: skip


def test_pins_are_swept_like_any_key() -> None:
    assert list_jobs(["+target=a", "search.pins.max_waiting=8,16"]) == [
        ("+target=a", "++search.pins.max_waiting=8"), ("+target=a", "++search.pins.max_waiting=16"),
    ]  # fmt: skip


def test_what_only_hydra_knows_is_left_to_it() -> None:
    assert list_jobs(["+target=glob(*)"]) is None
    assert list_jobs(["+target=a", "hydra/sweeper=optuna"]) is None
    assert refuse_wrong_jobs(["+target=glob(*)"]) is None


def test_all_faults_of_all_jobs_are_told_before_anything_runs() -> None:
    with pytest.raises(SpecError) as caught:
        refuse_wrong_jobs(["+target=tiny_cpu,nope", "budget.attempts=0,1"])
    text = str(caught.value)
    assert "none was started" in text
    assert "+target=tiny_cpu budget.attempts=0: " in text
    assert "+target=nope budget.attempts=1: no target 'nope'" in text
    assert "+target=tiny_cpu budget.attempts=1" not in text


def test_a_sweep_without_target_lists_the_targets() -> None:
    with pytest.raises(SpecError, match="no target given"):
        refuse_wrong_jobs(["budget=smoke,small"])


@pytest.mark.parametrize("overrides", [["target=tiny_cpu"], ["target=tiny_cpu,smollm2_cpu"]])
def test_a_target_without_its_plus_is_refused_as_in_a_single_run(overrides: list[str]) -> None:
    with pytest.raises(SpecError, match="lacks its plus"):
        refuse_wrong_jobs(overrides)


def test_a_correct_sweep_comes_with_the_specs_of_its_jobs() -> None:
    jobs = refuse_wrong_jobs(["+target=tiny_cpu", "search=greedy,random", "search.pins.max_waiting=8"])
    assert jobs is not None
    assert [(spec.target.name, spec.search.policy, spec.search.pins) for _, spec in jobs] == [
        ("tiny_cpu", "greedy", {"max_waiting": 8}), ("tiny_cpu", "random", {"max_waiting": 8}),
    ]  # fmt: skip


def test_hydra_runs_every_combination(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    seen: list[tuple[str, int, int]] = []
    launch_jobs(
        ["+target=tiny_cpu,smollm2_cpu", "budget.rounds=1,2", "search.pins.max_waiting=8"],
        folder=tmp_path / "it's a sweep",
        job=lambda config: seen.append((config.target.name, config.budget.rounds, config.search.pins.max_waiting)),
    )
    assert seen == [("tiny_cpu", 1, 8), ("tiny_cpu", 2, 8), ("smollm2_cpu", 1, 8), ("smollm2_cpu", 2, 8)]
    assert (tmp_path / "it's a sweep/multirun.yaml").is_file()


def test_the_launcher_decides_whether_jobs_run_here() -> None:
    assert launcher_of(["+target=a"]) == "basic"
    assert launcher_of(["+target=a", "hydra/launcher=ray"]) == "ray"
    assert runs_here(["hydra/launcher=ray", "+hydra.launcher.ray.init.num_cpus=2"])
    assert not runs_here(["hydra/launcher=ray", "hydra.launcher.ray.init.address=auto"])
    assert not runs_here(["hydra/launcher=submitit_slurm"])


def test_a_launcher_hydra_does_not_know_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="unknown launcher 'joblub'; did you mean 'joblib'") as caught:
        check_launch(["+target=tiny_cpu", "hydra/launcher=joblub"], folder=tmp_path)
    assert "basic" in caught.value.hint
    check_launch(["+target=tiny_cpu", "budget=smoke,small"], folder=tmp_path)


def test_a_wrong_key_of_the_launch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"hydra\.sweep\.dri"):
        check_launch(["+target=tiny_cpu", "hydra.sweep.dri=x"], folder=tmp_path)
