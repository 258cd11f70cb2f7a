"""One process at a time carries out a run."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from vibeserve.core.documents import read_document, write_document
from vibeserve.errors import InfraError
from vibeserve.lease import Owner, await_run, living_owner, own_run
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


def test_the_second_job_of_a_sweep_waits_says_for_whom_and_goes_on(tmp_path: Path) -> None:
    first = hold(tmp_path, 1.0)
    owner = living_owner(tmp_path)
    assert owner is not None and owner.pid == first.pid
    progress = QuietProgress()
    with await_run(tmp_path, run="second", progress=progress, poll_s=0.02):
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


def test_a_second_process_is_refused_with_the_owners_pid_and_host(tmp_path: Path) -> None:
    first = hold(tmp_path, 60)
    try:
        with pytest.raises(InfraError) as caught, own_run(tmp_path, run="r1", progress=QuietProgress()):
            pass
    finally:
        first.kill()
        first.communicate()
    line, step = str(caught.value).splitlines()
    assert line.startswith(f"run r1 is being carried out by pid {first.pid} on {socket.gethostname()}, since ")
    assert "`vibeserve status`" in step and "`vibeserve steer`" in step and f"`kill {first.pid}`" in step
    assert caught.value.exit_code == 5
    with own_run(tmp_path, run="r1", progress=QuietProgress()):
        mine = living_owner(tmp_path)
        assert mine is not None and mine.pid == os.getpid(), "the killed owner's record is stale, its lock is gone"


def recorded(tmp_path: Path, **changes: object) -> None:
    """A record of an owner that left without removing it."""
    mine = Owner.myself(run="r1")
    write_document(tmp_path / "owner.json", replace(mine, **changes))  # type: ignore[arg-type]


def test_a_pid_that_another_process_has_now_is_not_the_owner(tmp_path: Path) -> None:
    recorded(tmp_path, start_ticks=1)
    assert living_owner(tmp_path) is None
    with own_run(tmp_path, run="r1", progress=QuietProgress()):
        assert read_document(tmp_path / "owner.json", Owner).start_ticks != 1


def test_an_owner_on_another_machine_is_named_and_not_pushed_aside(tmp_path: Path) -> None:
    recorded(tmp_path, host="elsewhere", boot_id="another", pid=77, command="vibeserve +target=x")
    with pytest.raises(InfraError) as caught, own_run(tmp_path, run="r1", progress=QuietProgress()):
        pass
    line, step = str(caught.value).splitlines()
    assert line.startswith("run r1 was being carried out by pid 77 on elsewhere, since ")
    assert line.endswith("(vibeserve +target=x), and from here it cannot be told whether it still is")
    assert step == f"next: look there; if it has ended, remove {tmp_path}/owner.json and start again"
    assert read_document(tmp_path / "owner.json", Owner).pid == 77
    (tmp_path / "owner.json").unlink()
    with own_run(tmp_path, run="r1", progress=QuietProgress()):
        pass


@pytest.mark.parametrize("changes", [{"host": "a-container"}, {"boot_id": "before the last boot"}])
def test_a_container_or_an_earlier_boot_of_this_machine_is_no_other_machine(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    recorded(tmp_path, start_ticks=1, **changes)
    with own_run(tmp_path, run="r1", progress=QuietProgress()):
        pass


def test_a_record_that_cannot_be_read_says_nothing(tmp_path: Path) -> None:
    for text in ("{", '{"schema_version": 99}'):
        (tmp_path / "owner.json").write_text(text)
        assert living_owner(tmp_path) is None
        with own_run(tmp_path, run="r1", progress=QuietProgress()):
            pass
