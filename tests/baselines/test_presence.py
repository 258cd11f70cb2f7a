"""Declared baselines that are not installed: what is refused, what is only said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from plan_samples import CPU, FACTS, H100, SMOLLM2, spec_of

from vibeserve.baselines.presence import goal_texts, required_texts, with_presence
from vibeserve.cli.main import main
from vibeserve.errors import InfraError
from vibeserve.plan import compile_plan, refuse_obstacles
from vibeserve.spec import Baseline, BaselineClass, Goal, Hardware, Sandbox, Spec, Tier

VLLM = Goal(metric="output_throughput", load="c8", min_ratio=1.1, against="vllm")
COMPETENT = replace(VLLM, against="competent")
TARGET = """\
defaults:
  - override /model: tiny_llama
  - override /hardware: cpu
  - override /workload: chat_short
  - override /baseline: [scaffold, vllm]
baseline: {{vllm: {{required: {required}}}}}
goals:
  - {{metric: output_throughput, min_ratio: 1.1, against: vllm}}
"""
REQUIRED = "baseline.vllm: required, and not installed; vibeserve peers install vllm"
NOTE = (
    "goals[0]: nothing to measure it against is here, so that it cannot be met (vllm: not installed; vibeserve peers "
    "install vllm)"
)


@pytest.fixture(autouse=True)
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM and llama.cpp have environments of their own, in the cache."""
    monkeypatch.setenv("VIBESERVE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "repository"
    (root / "targets").mkdir(parents=True)
    for name, required in (("needs", "true"), ("may", "false")):
        (root / "targets" / f"{name}.yaml").write_text(TARGET.format(required=required))
    monkeypatch.chdir(root)
    return root


def declared(*goals: Goal, hardware: Hardware = CPU, **baselines: Baseline) -> Spec:
    wall = Sandbox(tier=Tier.C, allow_none=True)
    return spec_of(SMOLLM2, hardware, goals=list(goals), baseline=baselines, sandbox=wall)


def test_a_required_one_is_an_obstacle_with_the_command() -> None:
    spec = declared(VLLM, vllm=Baseline(required=True))
    assert list(required_texts(spec)) == [REQUIRED]
    plan = with_presence(compile_plan(spec, facts=FACTS))
    assert [(each.kind, each.text) for each in plan.obstacles] == [("baseline", REQUIRED)]
    with pytest.raises(InfraError, match="vibeserve peers install vllm"):
        refuse_obstacles(plan)


def test_what_is_installed_here_says_nothing_of_hardware_elsewhere() -> None:
    plan = with_presence(compile_plan(declared(VLLM, hardware=H100, vllm=Baseline(required=True)), facts=FACTS))
    assert [each.kind for each in plan.obstacles] == ["host"]


def test_a_goal_without_an_opponent_is_noted() -> None:
    alone = declared(VLLM, COMPETENT, vllm=Baseline())
    assert list(goal_texts(alone)) == [NOTE, NOTE.replace("goals[0]", "goals[1]")]
    plan = with_presence(compile_plan(alone, facts=FACTS))
    assert (plan.obstacles, plan.notes[-2]) == ((), NOTE)
    beside = declared(COMPETENT, vllm=Baseline(), scaffold=Baseline(baseline_class=BaselineClass.competent))
    assert list(goal_texts(beside)) == []


def test_check_notes_it_plan_tells_it_and_a_run_is_refused(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "needs", "may"]) == 0
    assert capsys.readouterr().out.splitlines()[:4] == [
        "needs: ok",
        f"  note: {REQUIRED}",
        "may: ok",
        f"  note: {NOTE}",
    ]
    assert main(["plan", "needs", "hardware.bandwidth_gb_s=15", "sandbox=none"]) == 0
    assert capsys.readouterr().out.splitlines()[-2:] == ["this target does not run from here:", f"  {REQUIRED}"]
    assert main(["plan", "may", "hardware.bandwidth_gb_s=15", "sandbox=none"]) == 0
    assert f"  note        {NOTE}" in capsys.readouterr().out.splitlines()
    before = sorted(repository.rglob("*"))
    assert main(["+target=needs", "sandbox=none"]) == 5
    assert capsys.readouterr().err.splitlines()[1] == REQUIRED
    assert sorted(repository.rglob("*")) == before
