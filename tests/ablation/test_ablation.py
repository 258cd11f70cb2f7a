"""`skills ablate`: the effect and its interval, the arms, what is refused, and whole runs of the tiny target."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from vibeserve.ablation import combined, effect_row
from vibeserve.ablation.command import ablate, main, record
from vibeserve.ablation.running import Finished, build
from vibeserve.core.documents import from_data, read_document, to_data
from vibeserve.core.manifest import BaselineValue, Manifest, MetricResult
from vibeserve.core.nouns import METRICS, Role
from vibeserve.core.paths import data_dir
from vibeserve.errors import InfraError, SpecError
from vibeserve.skills import load_skills, write_draft
from vibeserve.skills.effects import EFFECT_FILE, EffectFile
from vibeserve.skills.loader import load_skill

SKILLS = load_skills(data_dir("skills"))


def manifest(ratio: float, low: float, high: float, *, baseline: str = "scaffold", cpu: str = "a CPU") -> Manifest:
    known = METRICS["output_throughput"]
    row = BaselineValue(
        name=baseline, baseline_class="competent", version="1", value=10.0, ratio=ratio, ci_low=low, ci_high=high
    )
    metric = MetricResult(
        name=known.name, unit=known.unit, direction=known.direction, role=Role.HEADLINE, load="c4", candidate=20.0,
        baselines=(row,),
    )  # fmt: skip
    return Manifest(
        target="tiny_cpu", plan_id="0123", status="certified", level="quick", created_at="2026-01-01T00:00:00Z",
        sandbox_tier="A", hardware={"cpu_model": cpu}, metrics=(metric,),
    )  # fmt: skip


def test_the_interval_of_a_quotient() -> None:
    ratio, low, high = combined((2.0, 1.8, 2.2), (1.0, 0.9, 1.1))
    assert ratio == 2.0
    assert math.isclose(math.log(low), math.log(2) - math.hypot(math.log(2 / 1.8), math.log(1.1)))
    assert math.isclose(math.log(high), math.log(2) + math.hypot(math.log(2.2 / 2), math.log(1 / 0.9)))
    exact = combined((2.0, 1.8, 2.2), (1.0, 1.0, 1.0))
    assert all(math.isclose(*pair) for pair in zip(exact, (2.0, 1.8, 2.2), strict=True))
    wide = combined((1.0, 0.5, 2.0), (1.0, 0.5, 2.0))
    assert wide[1] < 0.5 and wide[2] > 2.0, "two uncertain numbers are more uncertain together"


def test_the_effect_of_a_skill_is_the_quotient_against_one_baseline() -> None:
    row = effect_row(manifest(3.0, 2.9, 3.1), manifest(1.5, 1.4, 1.6))
    assert (row.effect, row.with_ratio, row.without_ratio, row.against) == (2.0, 3.0, 1.5, "scaffold")
    assert row.ci_low < 2.0 < row.ci_high and row.level == "quick"


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (manifest(1.5, 1.4, 1.6, baseline="vllm"), "measured no headline against the baseline scaffold"),
        (manifest(1.5, 1.4, 1.6, cpu="another"), "were measured on other hardware"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(other: Manifest, expected: str) -> None:
    with pytest.raises(InfraError, match=expected):
        effect_row(manifest(3.0, 2.9, 3.1), other)


class Runs:
    """Stands for the product's runs: what each leaves is decided by its overrides."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, target: str, overrides: Sequence[str], *, arm: str, project: Path) -> Finished:
        self.asked.append((arm, *overrides))
        excluded = next((text for text in overrides if text.startswith("skills.exclude")), "")
        names = ("continuous-batching", "packed-linears")
        left = () if arm == "agent without skills" else tuple(name for name in names if name not in excluded)
        if "packed-linears" in excluded and arm.startswith("without"):
            return Finished(artifact=project, manifest=None, why="exit 3: refused")
        value = 1.0 + len(left)
        return Finished(artifact=project, manifest=manifest(value, value * 0.9, value * 1.1), components=left)


def run(runs: Runs, *, names: tuple[str, ...] = (), agents: str = "") -> Any:
    told: list[str] = []
    return ablate(
        "tiny_cpu", ("budget=smoke",), skills=SKILLS, names=names, agents=agents, project=Path(), tell=told.append,
        build=runs,
    )  # fmt: skip


def test_each_component_of_the_winner_is_left_out_in_turn() -> None:
    runs = Runs()
    found = run(runs)
    assert [(row.skill, row.state) for row in found.skills] == [
        ("continuous-batching", "measured"), ("packed-linears", "failed")
    ]  # fmt: skip
    assert found.skills[0].effect.effect == 1.5 and found.skills[0].without == ("packed-linears",)
    assert found.skills[1].why == "the run without it: exit 3: refused"
    assert [(arm.name, arm.state) for arm in found.arms] == [
        ("playbook with components", "measured"), ("agent with components", "open"),
        ("agent with notes only", "open"), ("agent without skills", "open"),
    ]  # fmt: skip
    assert found.arms[1].why == "no agent was given (--agents BACKEND)" and found.arms[0].ratio == 3.0
    assert runs.asked[1] == ("without continuous-batching", "budget=smoke", "skills.exclude=[continuous-batching]")


def test_a_skill_that_the_winner_does_without_is_not_run() -> None:
    runs = Runs()
    (row,) = run(runs, names=("batched-sampling",)).skills
    assert (row.state, row.effect) == ("not used", None) and len(runs.asked) == 1


def test_with_an_agent_all_four_arms_are_run() -> None:
    runs = Runs()
    found = run(runs, names=("continuous-batching",), agents="openai")
    assert [arm.state for arm in found.arms] == ["measured"] * 4
    arms = {asked[0]: asked[1:] for asked in runs.asked}
    assert arms["agent with notes only"] == ("budget=smoke", "skills.components=false", "agents=openai")
    everything = ",".join(skill.name for skill in SKILLS)
    assert f"skills.exclude=[{everything}]" in arms["agent without skills"]
    assert "agents=openai" in arms["without continuous-batching"] and found.arms[3].components == ()


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (("--skill", "absent"), "there is no skill 'absent'; valid: batched-decode-attention"),
        (("--skill", "profiling"), "'profiling' has no component: the playbook assembles nothing of it"),
    ],
)
def test_what_cannot_be_left_out_is_refused(argv: tuple[str, ...], expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        main(["--target", "tiny_cpu", *argv])
    assert expected in str(caught.value)


def test_a_recorded_effect_replaces_the_one_of_its_target(tmp_path: Path) -> None:
    skill = load_skill(write_draft("continuous-batching", folder=tmp_path))
    found = run(Runs())
    for _ in range(2):
        record(found, skills=[skill])
    rows = read_document(skill.path / EFFECT_FILE, EffectFile).rows
    assert [(row.target, row.effect) for row in rows] == [("tiny_cpu", 1.5)]
    assert from_data(EffectFile, to_data(EffectFile(rows=rows))).rows == rows


def test_a_run_that_fails_says_why(tmp_path: Path) -> None:
    done = build("no_such_target", (), arm="playbook", project=tmp_path)
    assert done.manifest is None and "exit 2" in done.why and "no_such_target" in done.why


@pytest.mark.audit
@pytest.mark.timeout(900)
def test_the_tiny_target_with_and_without_batching(
    tmp_path: Path, cache: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = main(["--target", "tiny_cpu", "--skill", "continuous-batching", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == 0, found
    (row,) = found["skills"]
    assert row["state"] == "measured" and "continuous-batching" not in row["without"]
    assert row["effect"]["target"] == "tiny_cpu" and row["effect"]["ci_low"] <= row["effect"]["effect"]
    assert "continuous-batching" in found["arms"][0]["components"]
    assert (tmp_path / "artifacts/ablation/tiny_cpu.json").is_file()
    assert not (tmp_path / "artifacts/tiny_cpu").exists(), "the target's own artifacts stay what they were"
