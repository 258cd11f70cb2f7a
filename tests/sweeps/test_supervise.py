"""One job under its supervisor: however its process ends, there is a status, and nothing of it is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from vibeserve.config.sweep import JobFacts
from vibeserve.core.documents import write_document
from vibeserve.lease import Owner
from vibeserve.sandbox import tree
from vibeserve.sweeps import supervise as module
from vibeserve.sweeps.documents import (
    LAUNCHER,
    SWEEP,
    JobState,
    JobStatus,
    SweepDocument,
    ask_to_stop,
    read_status,
    write_status,
)
from vibeserve.sweeps.supervise import supervise

FAKE_JOB = (sys.executable, str(Path(__file__).with_name("fake_job.py")))


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    """The folder of a sweep whose jobs are fakes."""
    folder = tmp_path / "sweep"
    document = SweepDocument(project=tmp_path, overrides=(), jobs=(), job_argv=FAKE_JOB)
    write_document(folder / SWEEP, document)
    return folder


def facts(sweep: Path, rounds: int, *, number: int = 0) -> JobFacts:
    overrides = ("+target=tiny_cpu", f"budget.rounds={rounds}")
    return JobFacts(folder=sweep / str(number), number=number, overrides=overrides)


def run(sweep: Path, rounds: int) -> JobStatus:
    supervise(facts(sweep, rounds))
    status = read_status(sweep / "0")
    assert status is not None
    return status


def wait_for(path: Path) -> int:
    """The number that is written to `path`, once it is there."""
    deadline_s = time.monotonic() + 60
    while not path.is_file() or not path.read_text():
        assert time.monotonic() < deadline_s, f"{path} was not written"
        time.sleep(0.02)
    return int(path.read_text())


def test_a_job_that_ends_well(sweep: Path) -> None:
    status = run(sweep, 1)
    assert (status.state, status.exit_code, status.target, status.plan_id) == (JobState.DONE, 0, "tiny_cpu", "0" * 16)
    assert status.overrides == ("+target=tiny_cpu", "budget.rounds=1")
    assert status.owner is None


def test_a_job_that_ends_with_an_error_of_its_own(sweep: Path) -> None:
    status = run(sweep, 5)
    assert (status.state, status.exit_code, status.text) == (JobState.FAILED, 3, "the result is not certified")


def test_a_job_that_is_killed_has_died(sweep: Path) -> None:
    status = run(sweep, 2)
    assert (status.state, status.exit_code) == (JobState.DIED, 5)
    assert status.text == "the job's process died: killed by SIGKILL"


def test_a_bug_has_its_traceback_in_the_status(sweep: Path) -> None:
    status = run(sweep, 3)
    assert (status.state, status.exit_code) == (JobState.DIED, 1)
    assert status.text.startswith("the job's process died: exit status 1 without a result\n  | Traceback")
    assert status.text.endswith("  | ZeroDivisionError: a bug")


def stopped(sweep: Path, rounds: int, stop: Callable[[], None]) -> JobStatus:
    """Status of a job that works until `stop` was called."""
    thread = threading.Thread(target=supervise, args=(facts(sweep, rounds),))
    thread.start()
    pid = wait_for(sweep / "0/works")
    running = read_status(sweep / "0")
    assert running is not None and running.state is JobState.RUNNING
    assert running.owner is not None and running.owner.pid == pid and running.owner.is_alive
    stop()
    thread.join(60)
    assert not thread.is_alive()
    assert tree.read_stat(pid) is None
    status = read_status(sweep / "0")
    assert status is not None
    return status


def test_a_stopping_sweep_ends_the_job(sweep: Path) -> None:
    status = stopped(sweep, 4, lambda: ask_to_stop(sweep))
    assert (status.state, status.exit_code, status.owner) == (JobState.INTERRUPTED, 130, None)


def test_a_job_that_does_not_want_to_end_is_killed(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.end_child, "__kwdefaults__", {"grace_s": 0.2})
    assert stopped(sweep, 6, lambda: ask_to_stop(sweep)).state is JobState.INTERRUPTED


def test_a_job_ends_with_its_launcher(sweep: Path) -> None:
    launcher = subprocess.Popen(["sleep", "600"])
    write_document(sweep / LAUNCHER, Owner.of(launcher.pid, run="sweep", command="sleep"))

    def end() -> None:
        launcher.kill()
        launcher.wait()

    assert stopped(sweep, 4, end).state is JobState.INTERRUPTED


def test_an_interrupt_of_the_supervisor_ends_the_job(sweep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(child: subprocess.Popen[bytes], sweep_folder: Path) -> bool:
        wait_for(sweep / "0/works")
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_stand_by", interrupted)
    with pytest.raises(KeyboardInterrupt):
        supervise(facts(sweep, 4))
    assert tree.read_stat(wait_for(sweep / "0/works")) is None
    status = read_status(sweep / "0")
    assert status is not None and status.state is JobState.INTERRUPTED


def test_nothing_starts_in_a_sweep_that_is_stopping(sweep: Path, tmp_path: Path) -> None:
    ask_to_stop(sweep)
    status = run(sweep, 1)
    assert (status.state, status.exit_code) == (JobState.NOT_STARTED, 130)
    assert not (tmp_path / "runs.txt").exists()


def test_a_job_that_was_found_done_is_not_run(sweep: Path, tmp_path: Path) -> None:
    present = JobStatus(job=0, target="tiny_cpu", overrides=(), state=JobState.PRESENT, exit_code=0)
    write_status(sweep / "0", present)
    assert run(sweep, 1) == present
    assert not (tmp_path / "runs.txt").exists()


def test_a_job_sees_the_environment_of_the_sweep_whatever_its_launcher_set(
    sweep: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = SweepDocument(
        project=tmp_path, overrides=(), jobs=(), job_argv=FAKE_JOB,
        environment={"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": None, "CUDA_VISIBLE_DEVICES": "0"},
    )  # fmt: skip
    write_document(sweep / SWEEP, document)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    run(sweep, 7)
    seen = json.loads((sweep / "0/seen.json").read_text())
    assert (seen["cwd"], seen["threads"]) == (str(tmp_path), "3")
    assert seen["session"] != os.getsid(0), "Ctrl-C in the terminal is for the sweep"


@pytest.mark.parametrize(("launcher", "seen"), [("", "0"), ("1", "1")])
def test_gpus_that_a_launcher_gave_out_are_kept_and_hidden_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str, seen: str
) -> None:
    document = SweepDocument(
        project=tmp_path, overrides=(), jobs=(), job_argv=(), environment={"CUDA_VISIBLE_DEVICES": "0"}
    )
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", launcher)
    assert module._environment(document)["CUDA_VISIBLE_DEVICES"] == seen
    unset = replace(document, environment={"CUDA_VISIBLE_DEVICES": None})
    assert module._environment(unset).get("CUDA_VISIBLE_DEVICES") == (launcher or None)
