"""A whole sweep with fakes for jobs: real processes, Hydra's basic launcher, and a stop in the middle."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vibeserve.errors import SpecError
from vibeserve.sandbox import tree
from vibeserve.sweeps.documents import SUMMARY, statuses
from vibeserve.sweeps.driver import Teller, run_sweep
from vibeserve.sweeps.summary import Row

FAKE_JOB = [sys.executable, str(Path(__file__).with_name("fake_job.py"))]
LIMIT_S = 120.0
DRIVER = """
import sys
from vibeserve.sweeps.driver import run_sweep
def say(line):
    print(line, flush=True)
sys.exit(run_sweep(sys.argv[3:], is_json=False, say=say, job_argv=sys.argv[1:3]))
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sweep_folder(project: Path) -> Path:
    (folder,) = (project / ".vibeserve/sweeps").iterdir()
    return folder


def lines_of(*overrides: str) -> tuple[int, list[str]]:
    lines: list[str] = []
    code = run_sweep(["-m", *overrides], is_json=False, say=lines.append, job_argv=FAKE_JOB)
    return code, lines


def test_one_failed_job_neither_stops_nor_hides_the_others(project: Path) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    code, lines = lines_of("+target=tiny_cpu", "budget.rounds=2,3,5,1")
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    text = "\n".join(lines)
    states = [status.state.value for status in statuses(sweep_folder(project))]
    assert states == ["died", "died", "failed", "done"]
    assert code == 5, "the worst of 5, 1, 3 and 0"
    assert "job 0 (tiny_cpu budget.rounds=2): the job's process died: killed by SIGKILL" in text
    assert "job 1 (tiny_cpu budget.rounds=3): the job's process died: exit status 1" in text
    assert "ZeroDivisionError: a bug" in text
    assert "job 2 (tiny_cpu budget.rounds=5): the result is not certified" in text
    assert any(line.startswith("job 3  00:00 fake") and line.endswith("rounds 1") for line in lines)
    table = [line.split()[:4] for line in lines if line[:1].isdigit()]
    assert table == [
        ["0", "tiny_cpu", "budget.rounds=2", "died"], ["1", "tiny_cpu", "budget.rounds=3", "died"],
        ["2", "tiny_cpu", "budget.rounds=5", "refused"], ["3", "tiny_cpu", "budget.rounds=1", "done"],
    ]  # fmt: skip
    summary = json.loads((sweep_folder(project) / SUMMARY).read_text())
    assert (summary["schema_version"], summary["exit_code"], len(summary["rows"])) == (1, 5, 4)


def test_with_json_every_line_is_a_document(tmp_path: Path) -> None:
    lines: list[str] = []
    teller = Teller(say=lines.append, is_json=True)
    blank: dict[str, Any] = {"target": "tiny_cpu", "overrides": ("search=random",)}
    rows = [
        Row(job=0, status="done", exit_code=0, ratio=2.0, **blank),
        Row(job=1, status="refused", exit_code=3, error="not certified", **blank),
    ]
    teller.start(tmp_path, num_jobs=2, num_missing=1)
    teller.event(0, {"at_s": 1.0, "stage": "plan", "text": "begins"})
    teller.stopping()
    teller.end(rows, folder=tmp_path, code=3, error="")
    start, event, stopping, first, second, last = [json.loads(line) for line in lines]
    assert start["text"].startswith("2 jobs, 1 of them done before")
    assert event == {"job": 0, "at_s": 1.0, "stage": "plan", "text": "begins"}
    assert stopping["stage"] == "sweep"
    assert (first["job"], first["status"], first["ratio"], first["schema_version"]) == (0, "done", 2.0, 1)
    assert (second["exit_code"], second["error"], second["overrides"]) == (3, "not certified", ["search=random"])
    assert last == {"schema_version": 1, "summary": str(tmp_path / SUMMARY), "exit_code": 3, "error": ""}


def wait_until(condition: Callable[[], bool], *, what: str) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"not seen: {what}"
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_stop_ends_the_jobs_and_the_launcher_and_is_130(project: Path, number: signal.Signals) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, *FAKE_JOB, "-m", "+target=tiny_cpu", "budget.rounds=1,4,5"], text=True,
        stdout=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        wait_until(lambda: list(project.glob(".vibeserve/sweeps/*/1/works")) != [], what="the second job at work")
        below = [stat.pid for stat in tree.descendants(driver.pid)]
        assert len(below) == 3, "warden, launcher, job"
        driver.send_signal(number)
        output, _ = driver.communicate(timeout=LIMIT_S)
    finally:
        driver.kill()
    assert driver.returncode == 130
    assert [stat for pid in below if (stat := tree.read_stat(pid)) is not None and stat.state not in "ZX"] == []
    assert [status.state.value for status in statuses(sweep_folder(project))] == ["done", "interrupted", "not started"]
    assert "next: the same command goes on with what is not done" in output
    assert (project / "runs.txt").read_text() == "0 1\n1 4\n"


@pytest.mark.slow
def test_a_killed_sweep_takes_its_jobs_with_it(project: Path) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, *FAKE_JOB, "-m", "+target=tiny_cpu", "budget.rounds=4"],
        stdout=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    wait_until(lambda: list(project.glob(".vibeserve/sweeps/*/0/works")) != [], what="the job at work")
    below = [stat.pid for stat in tree.descendants(driver.pid)]
    driver.kill()
    driver.wait()

    def is_over() -> bool:
        stats = [tree.read_stat(pid) for pid in below]
        return all(stat is None or stat.state in "ZX" for stat in stats)

    wait_until(is_over, what="the end of everything below it")


def test_a_launcher_that_breaks_is_reported_with_a_row_for_every_job(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "vibeserve.sweeps.driver.WARDEN_ARGV", (sys.executable, "-c", "raise SystemExit('the pool is broken')")
    )
    code, lines = lines_of("+target=tiny_cpu", "budget.rounds=1,5")
    text = "\n".join(lines)
    assert code == 5
    assert "the launcher ended with status 1\nthe pool is broken" in text
    assert [status.state.value for status in statuses(sweep_folder(project))] == ["not started"] * 2


def test_a_job_whose_supervisor_was_killed_is_reported_and_ended(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a launcher's worker is killed: the job's status still says that it runs."""
    script = (
        "import os, subprocess, sys; from pathlib import Path\n"
        "from vibeserve.lease import Owner; from vibeserve.sweeps.documents import *\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "write_status(Path(sys.argv[1]) / '0', JobStatus(job=0, target='tiny_cpu', overrides=('budget.rounds=1',),\n"
        "    state=JobState.RUNNING, exit_code=0, owner=Owner.of(child.pid, run='r', command='sleep')))\n"
        "Path('pid').write_text(str(child.pid)); os._exit(1)\n"
    )
    monkeypatch.setattr("vibeserve.sweeps.driver.WARDEN_ARGV", (sys.executable, "-c", script))
    code, _ = lines_of("+target=tiny_cpu", "budget.rounds=1")
    (status,) = statuses(sweep_folder(project))
    assert (code, status.state.value, status.owner) == (5, "died", None)
    assert "stood by this job ended" in status.text
    stat = tree.read_stat(int((project / "pid").read_text()))
    assert stat is None or stat.state in "ZX"


@pytest.mark.parametrize(
    ("overrides", "problem", "hint"),
    [
        (["+target=nope,tiny_cpu"], "+target=nope: no target 'nope'", ""),
        (
            ["+target=tiny_cpu", "search.pins.max_waitin=3,4"],
            "search.pins.max_waitin: no scaffold and no component",
            "",
        ),
        (["budget=smoke"], "valid targets: ", "vibeserve +target="),
        (["target=tiny_cpu"], "target=tiny_cpu: 'target=tiny_cpu' lacks its plus", ""),
        (["+target=tiny_cpu", "hydra/launcher=slurm"], "unknown launcher 'slurm'", "valid: basic"),
        (["+target=tiny_cpu", "hydra.sweep.dri=x"], "hydra.sweep.dri", ""),
    ],
)
def test_a_wrong_sweep_is_refused_and_leaves_nothing(
    project: Path, overrides: list[str], problem: str, hint: str
) -> None:
    with pytest.raises(SpecError) as caught:
        lines_of(*overrides)
    assert problem in str(caught.value)
    assert hint in caught.value.hint
    assert not list(project.glob(".vibeserve/sweeps/*"))


def test_a_launcher_that_is_not_installed_names_its_extra(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vibeserve.config.sweep.EXTRAS", {"elsewhere": "cloud"})
    with pytest.raises(SpecError, match="hydra/launcher=elsewhere is not installed here") as caught:
        lines_of("+target=tiny_cpu", "hydra/launcher=elsewhere")
    assert caught.value.hint == "pip install 'vibeserve[cloud]'"
