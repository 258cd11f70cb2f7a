"""A real sweep that is ended half-way and started again: what was done is not done again, what was begun goes on."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from e2e_project import COMMAND_TIMEOUT_S, Project, kill_group, wait_for

from vibeserve.journal import read_events

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * COMMAND_TIMEOUT_S)]

SWEEP = ("-m", "+target=tiny_cpu", "budget.rounds=1", "search=greedy,random")


@dataclass
class Swept:
    """The sweep stopped in its second job, and started again twice."""

    project: Project
    stopped: subprocess.CompletedProcess[str]
    living: list[str]
    """processes of the project right after the stop, those behind walls included"""
    packaged_at_s: float
    again: subprocess.CompletedProcess[str]
    third: subprocess.CompletedProcess[str]

    def folder(self, number: int) -> Path:
        return sorted((self.project.root / ".vibeserve/sweeps").iterdir())[number]

    def rows(self, number: int) -> list[dict[str, Any]]:
        document = json.loads((self.folder(number) / "summary.json").read_text())
        rows: list[dict[str, Any]] = document["rows"]
        return rows


def is_in_round_1(project: Project) -> bool:
    """The second job's round 0 is in its journal, and a server of the next round is up. Remembers its tree."""
    events = "".join(path.read_text() for path in project.root.glob(".vibeserve/sweeps/*/1/events.jsonl"))
    records = list(project.root.glob(".vibeserve/runs/*/synthesize/*.process.json"))
    if '"baseline: ' not in events or not records:
        return False
    project.seen_trees |= {path.name.removesuffix(".process.json") for path in records}
    return True


@pytest.fixture(scope="module")
def swept(make_project: Callable[[str], Project]) -> Swept:
    project = make_project("swept")
    process = project.popen(*SWEEP)
    try:
        wait_for(lambda: is_in_round_1(project), what="a server of round 1 of job 1", timeout_s=COMMAND_TIMEOUT_S)
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=COMMAND_TIMEOUT_S)
    except BaseException:
        kill_group(process)
        raise
    stopped = subprocess.CompletedProcess(process.args, process.returncode, output, errors)
    time.sleep(0.5)  # a killed process leaves /proc a moment after its parent heard of it
    living = project.living()
    (manifest,) = {path.resolve() for path in project.root.glob("artifacts/tiny_cpu/*/manifest.json")}
    return Swept(
        project=project, stopped=stopped, living=living, packaged_at_s=manifest.stat().st_mtime,
        again=project.command(*SWEEP), third=project.command(*SWEEP, "--json"),
    )  # fmt: skip


def test_the_stop_is_130_and_leaves_no_process(swept: Swept) -> None:
    assert swept.stopped.returncode == 130, swept.stopped.stdout + swept.stopped.stderr
    assert swept.living == []
    assert [row["status"] for row in swept.rows(0)] == ["done", "interrupted"]


def test_the_finished_job_is_not_redone_and_the_other_goes_on(swept: Swept) -> None:
    assert swept.again.returncode == 0, swept.again.stdout + swept.again.stderr
    assert [row["status"] for row in swept.rows(1)] == ["done before", "done"]
    assert "2 jobs, 1 of them done before" in swept.again.stdout
    assert "job 0  " not in swept.again.stdout
    assert "resumed after round 0" in swept.again.stdout
    first = swept.project.root / swept.rows(1)[0]["artifact"]
    assert (first / "manifest.json").stat().st_mtime == swept.packaged_at_s


def test_every_round_is_in_its_journal_once(swept: Swept) -> None:
    journals = sorted((swept.project.root / ".vibeserve/runs").glob("*/journal.jsonl"))
    assert len(journals) == 2
    for journal in journals:
        numbers = [event.data["record"]["number"] for event in read_events(journal) if event.kind == "round"]
        assert numbers == [0, 1]


def test_a_sweep_of_finished_jobs_launches_nothing(swept: Swept) -> None:
    assert swept.third.returncode == 0
    assert not (swept.folder(2) / "launcher.log").exists()
    rows = [json.loads(line) for line in swept.third.stdout.splitlines() if '"status"' in line]
    assert [(row["status"], row["overrides"]) for row in rows] == [
        ("done before", ["search=greedy"]), ("done before", ["search=random"]),
    ]  # fmt: skip
    assert all(row["metric"] == "output_throughput" and row["ratio"] > 0 for row in rows)
    assert {row["baseline"].split()[0] for row in rows} == {"scaffold"}


def test_the_leases_are_given_back(swept: Swept) -> None:
    done = swept.project.command("status", "--json")
    document = json.loads(done.stdout)
    assert document["leases"] == []
    assert [run["state"] for run in document["runs"]] == ["finished", "finished"]
