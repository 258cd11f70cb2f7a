"""One process at a time carries out a run."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from vibeserve.lease import living_owner, own_run
from vibeserve.progress import QuietProgress

HOLD = """
import sys, time
from pathlib import Path
from vibeserve.lease import own_run
from vibeserve.progress import QuietProgress
with own_run(Path(sys.argv[1]), run="first", progress=QuietProgress()):
    print("has it", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def hold(folder: Path, seconds: float) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder), str(seconds)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "has it\n"
    return process


def test_the_second_process_waits_says_for_whom_and_goes_on(tmp_path: Path) -> None:
    first = hold(tmp_path, 1.0)
    owner = living_owner(tmp_path)
    assert owner is not None and owner.pid == first.pid
    progress = QuietProgress()
    with own_run(tmp_path, run="second", progress=progress, poll_s=0.02):
        assert first.wait(timeout=30) == 0
        mine = living_owner(tmp_path)
        assert mine is not None and mine.run == "second"
    ((stage, text),) = progress.events
    assert stage == "plan"
    assert text.startswith(
        f"another process carries out this very run: waiting for it (run first, pid {first.pid}, since "
    )
    assert living_owner(tmp_path) is None


def test_a_killed_one_is_nobody_and_holds_nothing(tmp_path: Path) -> None:
    process = hold(tmp_path, 60)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert living_owner(tmp_path) is None
    assert (tmp_path / "owner.json").is_file()
    progress = QuietProgress()
    with own_run(tmp_path, run="second", progress=progress):
        pass
    assert progress.events == []
