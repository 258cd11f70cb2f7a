"""The place of a fault that nobody stated, or that only a plan finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from vibeserve.cli.main import main
from vibeserve.config import check_file

HEAD = """\
defaults:
  - override /model: smollm2_135m
  - override /hardware: cpu
  - override /workload: chat_short
"""
GOALS = HEAD + "goals:\n  - {metric: peak_memory, max_gib: 8}\n  - "


def errors_of(folder: Path, text: str) -> list[str]:
    path = folder / "targets" / "t.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return list(check_file(path, cwd=folder).errors)


def test_what_a_goal_leaves_out_is_missing_on_its_line(tmp_path: Path) -> None:
    (problem,) = errors_of(tmp_path, GOALS + "{metric: output_throughput, min_ratio: 1.1}\n")
    assert problem.startswith("targets/t.yaml:7:5: goals[1].against: '' is no class and no baseline; valid: ")


def test_no_goals_are_missing_in_the_targets_file(tmp_path: Path) -> None:
    assert errors_of(tmp_path, HEAD) == [
        "targets/t.yaml:1:1: goals: none is declared; the first one is the headline that the search improves"
    ]


def test_a_cpu_is_one_device(tmp_path: Path) -> None:
    goal = GOALS + "{metric: output_throughput, min_ratio: 1.1, against: competent}\n"
    assert errors_of(tmp_path, goal + "hardware: {count: 1000}\n") == [
        "targets/t.yaml:8:12: hardware.count: 1000 is above 1; the sockets of a CPU are one device, count them as 1"
    ]
    assert errors_of(tmp_path, goal + "hardware: {count: 1}\n") == []


@pytest.mark.parametrize("argv", [("plan", "t"), ("+target=t", "sandbox=none")])
def test_a_goal_beyond_the_roofline_is_told_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]
) -> None:
    text = GOALS + "{metric: ttft_p50, max_ms: 0.0001}\nhardware: {bandwidth_gb_s: 15}\n"
    assert errors_of(tmp_path, text) == []
    monkeypatch.chdir(tmp_path)
    assert main([*argv]) == 2
    assert capsys.readouterr().err.splitlines()[:2] == [
        "vibeserve: a goal lies beyond its roofline",
        "  targets/t.yaml:7:5: goals[1]: ttft_p50 0.0001 ms is unreachable: floor 17.94 ms (bandwidth, load c4)",
    ]
