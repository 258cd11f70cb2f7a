"""`vibeserve status`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vibeserve.artifact.status import main, run_statuses
from vibeserve.journal import Journal


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
    assert "2 events, last round 0 s ago: number=3 outcome=accepted" in lines[0]
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
    assert run_statuses(tmp_path)[0].line(now_s=0.0) == "a  no event yet"


def test_nothing_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dir", str(tmp_path)]) == 0
    assert "start one with `vibeserve +target=NAME`" in capsys.readouterr().out
