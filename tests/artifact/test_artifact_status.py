"""`vibeserve status`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vibeserve.artifact.status import main, run_statuses
from vibeserve.core.paths import lease_dir
from vibeserve.journal import Journal
from vibeserve.lease import Device, DeviceLease
from vibeserve.progress import QuietProgress


def test_runs_are_listed_with_their_last_event_newest_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for run in ("run-1", "run-2"):
        with Journal.open(tmp_path / ".vibeserve" / "runs" / run / "journal.jsonl") as journal:
            journal.append("start")
            journal.append("round", {"number": 3, "outcome": "accepted", "deep": {"x": 1}})
    (tmp_path / ".vibeserve" / "runs" / "run-2" / "workspace").mkdir()
    (tmp_path / ".vibeserve" / "runs" / "run-2" / "workspace" / "journal.jsonl").write_text("not ours")
    assert main(["--dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == ["runs/run-2", "runs/run-1"]
    assert "stopped, 2 events, last round 0 s ago: number=3 outcome=accepted" in lines[0]
    assert main(["--dir", str(tmp_path), "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert (runs[0]["run"], runs[0]["num_events"], runs[0]["last_kind"]) == ("runs/run-2", 2, "round")


def test_a_running_and_a_damaged_journal_are_shown(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "a" / "journal.jsonl") as journal:
        journal.append("start")
        assert run_statuses(tmp_path)[0].last_kind == "start"
    path = tmp_path / "a" / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b"start", b"stars") + path.read_bytes())
    assert "is damaged at line 1" in run_statuses(tmp_path)[0].line(now_s=0.0)
    path.write_text("")
    assert run_statuses(tmp_path)[0].line(now_s=0.0) == "a  stopped, no event yet"


HOLD = """
import sys, time
from pathlib import Path
from vibeserve.journal import Journal
from vibeserve.lease import own_run
from vibeserve.progress import QuietProgress
folder = Path(sys.argv[1])
with own_run(folder, run="r", progress=QuietProgress()), Journal.open(folder / "journal.jsonl") as journal:
    journal.append("opened")
    print("open", flush=True)
    time.sleep(60)
"""


def state_of(folder: Path) -> tuple[str, int | None]:
    (status,) = run_statuses(folder)
    return status.state, status.owner.pid if status.owner else None


def test_a_run_whose_process_is_gone_is_told_from_a_live_one(tmp_path: Path) -> None:
    folder = tmp_path / "runs/one"
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stdout.readline() == "open\n"
        assert state_of(tmp_path) == ("running", process.pid)
        assert f"runs/one  running in pid {process.pid}, 1 events" in run_statuses(tmp_path)[0].line(now_s=time.time())
    finally:
        process.kill()
        process.communicate()
    assert state_of(tmp_path) == ("stopped", None)
    with Journal.open(folder / "journal.jsonl") as journal:
        journal.append("packaged", {"path": "x"})
        journal.append("tier", "A")
    assert state_of(tmp_path) == ("finished", None)


def test_device_leases_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VIBESERVE_LEASES", str(tmp_path / "leases"))
    cpu = Device(name="cpu", title="the CPU")
    lease = DeviceLease([cpu], root=lease_dir(), run="target-1", progress=QuietProgress())
    with lease.exclusive("certification"):
        assert main(["--dir", str(tmp_path)]) == 0
        assert "device cpu: held exclusive by run target-1, pid " in capsys.readouterr().out
        assert main(["--dir", str(tmp_path), "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)["leases"]
    assert (row["device"], row["mode"], row["is_held"], row["what"]) == ("cpu", "exclusive", True, "certification")


def test_nothing_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dir", str(tmp_path)]) == 0
    assert "start one with `vibeserve +target=NAME`" in capsys.readouterr().out
