"""SIGINT at a graph that runs: once behind the step under way, twice at once; the same graph then goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vibeserve.build.graph import Step, StepContext, StepResult
from vibeserve.build.run import execute
from vibeserve.errors import InfraError, StorageError
from vibeserve.progress import QuietProgress

GRAPH = """
import sys, time
from pathlib import Path
from vibeserve.build.graph import Step, StepResult
from vibeserve.build.run import execute
from vibeserve.cli.boundary import within_boundary
from vibeserve.core.signals import finishing, terminable
from vibeserve.progress import LineProgress

folder, work_s = Path(sys.argv[1]), float(sys.argv[2])

def body(context):
    print(f"in {context.name}", flush=True)
    deadline_s = time.monotonic() + work_s
    while time.monotonic() < deadline_s and not (folder / "go").exists():
        time.sleep(0.02)
    return StepResult(document={})

def command(argv):
    with terminable(), finishing():
        steps = [Step(name="one", body=body), Step(name="two", body=body, deps=("one",))]
        execute(steps, state_dir=folder / "state", progress=LineProgress())
    return 0

sys.exit(within_boundary(command, ["+target=x"]))
"""


def start(folder: Path, *, work_s: float = 60.0) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", GRAPH, str(folder), str(work_s)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    while "in one" not in process.stdout.readline():
        assert process.poll() is None
    return process


def test_the_first_interrupt_finishes_the_step_and_the_same_command_goes_on(tmp_path: Path) -> None:
    process = start(tmp_path)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.readline() == (
        "vibeserve: stopping behind the step or round under way; once more to stop now\n"
    )
    (tmp_path / "go").touch()
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == (
        "vibeserve: interrupted\nnext: start the same command again; finished steps and rounds are kept\n"
    )
    assert "one          ran" in output and "two" not in output
    done = subprocess.run(
        [sys.executable, "-c", GRAPH, str(tmp_path), "0"], capture_output=True, text=True, check=True, timeout=60
    )
    assert "one          up to date" in done.stdout and "in two" in done.stdout


@pytest.mark.parametrize("signals", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM,)])
def test_the_second_interrupt_and_a_termination_end_at_once(
    tmp_path: Path, signals: tuple[signal.Signals, ...]
) -> None:
    process = start(tmp_path)
    for number in signals:
        process.send_signal(number)
        time.sleep(0.2)
    output, errors = process.communicate(timeout=30)
    assert process.returncode == 130 and "one          ran" not in output
    assert errors.endswith("next: start the same command again; finished steps and rounds are kept\n")
    assert not (tmp_path / "state/steps/one/stamp.json").exists()


def test_on_a_full_disk_a_failing_step_is_the_last_one_and_the_disk_is_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []

    def body(context: StepContext) -> StepResult:
        ran.append(context.name)
        raise InfraError("re-scoring failed (exit 1)")

    steps = [Step(name="one", body=body), Step(name="two", body=body)]
    with pytest.raises(InfraError, match=r"re-scoring failed"):
        execute(steps, state_dir=tmp_path, progress=QuietProgress())
    assert ran == ["one", "two"]
    monkeypatch.setattr("vibeserve.core.storage.MIN_FREE_MIB", 1 << 40)
    with pytest.raises(StorageError, match=r"the disk of .* is full: .*\nnext: free the disk and start the same"):
        execute(steps, state_dir=tmp_path, progress=QuietProgress())
    assert ran == ["one", "two", "one"]


def test_where_interrupts_are_ignored_they_stay_so(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = start(tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    os.kill(process.pid, signal.SIGINT)
    os.kill(process.pid, signal.SIGINT)
    (tmp_path / "go").touch()
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "") and "in two" in output
