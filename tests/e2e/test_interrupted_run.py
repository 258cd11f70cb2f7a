"""Killed wherever one likes, the same command goes on and ends as if nothing had happened. And a card that is wrong is
refused on the way."""

from __future__ import annotations

import json

import pytest
from e2e_project import COMMAND_TIMEOUT_S, Interrupted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * COMMAND_TIMEOUT_S)]


def test_it_ends_certified(interrupted: Interrupted) -> None:
    assert "certified   tiny_cpu" in interrupted.outputs[-1]
    manifest = interrupted.project.manifest()
    assert (manifest["status"], manifest["reasons"]) == ("certified", [])


def test_every_round_is_in_the_journal_once(interrupted: Interrupted) -> None:
    rounds = [event.data["record"] for event in interrupted.project.events("round")]
    assert [record["number"] for record in rounds] == [0, 1, 2]
    assert [record["outcome"] for record in rounds] == ["baseline", "rejected", "accepted"]
    assert len(interrupted.project.events("opened")) == 1
    # the round that was killed in its middle was started again, and no other was
    started = [
        line.split()[2] for output in interrupted.outputs for line in output.splitlines() if "; forecast x" in line
    ]
    assert started == ["1", "2", "2"]


def test_steps_that_were_done_are_not_done_again(interrupted: Interrupted) -> None:
    for output in interrupted.outputs[1:]:
        for step in ("weights", "reference", "baselines"):
            assert f"{step:<12} up to date" in output
    assert "resumed after round 0" in interrupted.outputs[1]
    assert "resumed after round 1" in interrupted.outputs[2]
    assert "resumed after round 1" in interrupted.outputs[3]
    last = interrupted.outputs[-1]
    assert f"{'synthesize':<12} up to date" in last
    assert f"{'certify':<12} up to date" in last
    assert f"{'package':<12} ran in" in last


def test_nothing_of_a_killed_run_is_left(interrupted: Interrupted) -> None:
    assert len(interrupted.trees_at_kill) >= 2, "candidate and incumbent were up when the command was killed"
    assert interrupted.project.living() == []
    assert list(interrupted.project.run_folder.rglob("*.process.json")) == []


def test_a_card_that_computes_something_else_is_refused_for_it(interrupted: Interrupted) -> None:
    record = interrupted.project.events("round")[1].data["record"]
    assert record["proposal"]["card"] == "sign-weights"
    assert record["verdict"]["refusals"]
    assert {refusal["gate"] for refusal in record["verdict"]["refusals"]} <= {"accuracy", "probe"}
    entry = json.loads((interrupted.project.artifact / "rounds/0001/entry.json").read_text())
    assert entry["outcome"] == "rejected"
    assert entry["refusals"]


def test_what_was_refused_is_no_part_of_the_result(interrupted: Interrupted) -> None:
    manifest = interrupted.project.manifest()
    assert "component:sign-weights" not in {row["origin"] for row in manifest["authorship"]}
    assembly = json.loads((interrupted.project.artifact / "runtime/runtime/assembly.json").read_text())
    assert "sign-weights" not in {component["name"] for component in assembly["components"]}
    assert manifest["candidates_tried"] == 3
