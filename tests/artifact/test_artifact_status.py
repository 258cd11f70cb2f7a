"""`vibeserve status`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vibeserve.agents.ledger import Spend
from vibeserve.agents.requests import AgentUsage
from vibeserve.artifact.status import main, run_statuses
from vibeserve.core.paths import lease_dir
from vibeserve.errors import SpecError
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
    assert "stopped, 2 events, last: round: number=3 outcome=accepted, 0 s ago" in lines[0]
    assert main(["--dir", str(tmp_path), "--json"]) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert (runs[0]["run"], runs[0]["num_events"], runs[0]["last_kind"]) == ("runs/run-2", 2, "round")


def test_what_agents_spent_is_shown_by_round_and_role(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def spend(role: str, key: str, tokens: int, usd: float | None) -> Spend:
        usage = AgentUsage(input_tokens=tokens, output_tokens=1)
        return Spend(role=role, key=key, backend="openai", model="m", usage=usage, usd=usd)

    with Journal.open(tmp_path / ".vibeserve" / "runs" / "run" / "journal.jsonl") as journal:
        for each in (
            spend("planner", "p01-planner", 9, 0.25), spend("implementer", "r01a1-implementer", 99, 1.0),
            spend("implementer", "r01a2-implementer", 99, 1.5), spend("judge", "r02a1-judge", 9, None),
        ):  # fmt: skip
            journal.append("spend", each)
    assert main(["--dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "    round 1 implementer (m): 2 requests, 200 tokens, 2.5000 USD",
        "    round 1 planner (m): 1 requests, 10 tokens, 0.2500 USD",
        "    round 2 judge (m): 1 requests, 10 tokens, no price",
    ]
    assert main(["--dir", str(tmp_path), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert [row["tokens"] for row in run["spent"]] == [200, 10, 10]


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


@pytest.mark.parametrize(
    ("kind", "data", "told"),
    [
        ("opened", {"target": "mine"}, "run started"),
        ("tier", "B", "wall chosen (tier B)"),
        ("round", {"record": {"number": 2, "outcome": "rejected"}}, "round 2 ended: rejected"),
        ("round", {"record": {"number": 4, "outcome": "rejected"}, "step": {"parent": "r01a1"}},
         "round 4 upon r01a1 ended: rejected"),
        ("move", {"number": 2, "why": "branches r00a1, r01a1", "rounds": [{}, {}]},
         "move 2: branches r00a1, r01a1, 2 rounds planned"),
        ("search_ended", {"why": "budget: 3 s are left"}, "search ended: budget: 3 s are left"),
        ("synthesized", {"winner": "r00a1"}, "winner chosen: r00a1"),
        ("certified", {"passed": False, "accuracy": {}}, "certification ended: not passed"),
        ("packaged", {"path": "a/b"}, "artifact written: a/b"),
        ("of a later version", None, "of a later version"),
    ],
)
def test_the_last_event_is_told_in_words(kind: str, data: object, told: str, tmp_path: Path) -> None:
    with Journal.open(tmp_path / "runs" / "one" / "journal.jsonl") as journal:
        journal.append(kind, data)
    (status,) = run_statuses(tmp_path)
    assert status.line(now_s=status.last_at_s).endswith(f", 1 events, last: {told}, 0 s ago")


def test_the_repositorys_runs_are_shown_from_below_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "targets").mkdir()
    (tmp_path / "one" / "sub").mkdir(parents=True)
    with Journal.open(tmp_path / ".vibeserve" / "runs" / "mine" / "journal.jsonl") as journal:
        journal.append("opened")
    monkeypatch.chdir(tmp_path / "one" / "sub")
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("runs/mine  stopped, 1 events, last: run started, ")
    assert main(["--dir", "."]) == 0
    assert capsys.readouterr().out.startswith("no run in .vibeserve; start one")


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "env.sh").write_text("")
    for name, why in (("env.sh", "a file, no folder"), ("absent", "no such folder")):
        with pytest.raises(SpecError, match=rf"status: --dir .*{name}: {why}\nnext: name the folder"):
            main(["--dir", str(tmp_path / name)])


def test_nothing_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--dir", str(tmp_path)]) == 0
    assert "start one with `vibeserve +target=NAME`" in capsys.readouterr().out
