"""One run's status: its rounds and checkpoints, the incumbent, what is left, who is at work, what waits."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from status_samples import long_run, round_data, spend

from vibeserve.agents.caller import Transcript
from vibeserve.agents.requests import Turn
from vibeserve.cli.document_schemas import status_schema
from vibeserve.cli.status import main
from vibeserve.control import CONTROL, submit
from vibeserve.core.documents import write_document
from vibeserve.core.nouns import Outcome
from vibeserve.core.paths import lease_dir
from vibeserve.errors import SpecError
from vibeserve.journal import Event, Journal
from vibeserve.lease import Device, DeviceLease, own_run
from vibeserve.planning import PlanningBook
from vibeserve.progress import QuietProgress
from vibeserve.status import (
    RunState,
    RunStatus,
    brief_lines,
    checkpoint_graph,
    page_lines,
    read_status,
    round_rows,
    spent_in_all,
    spent_rows,
)
from vibeserve.status.calls import last_lines
from vibeserve.status.documents import Phase
from vibeserve.status.text import round_lines

NAME = "tiny_cpu-0123456789abcdef"


def events(*rounds: dict[str, Any]) -> list[Event]:
    return [Event(seq=number, time_s=0.0, kind="round", data=data) for number, data in enumerate(rounds)]


# -- rounds and checkpoints


def test_without_a_recorded_parent_a_round_starts_from_the_incumbent_of_its_time() -> None:
    rows = round_rows(events(
        round_data(0), round_data(1), round_data(2, outcome=Outcome.REJECTED, ratio=0.9), round_data(3, ratio=2.0),
        round_data(4, outcome=Outcome.CRASHED, ratio=None),
    ))  # fmt: skip
    nodes = checkpoint_graph(rows)
    assert [(node.round, node.parent, node.is_kept, node.is_on_path) for node in nodes] == [
        (0, None, True, True), (1, 0, True, True), (2, 1, False, False), (3, 1, True, True), (4, 3, False, False)
    ]  # fmt: skip
    assert [node.ratio for node in nodes] == [1.0, 1.5, pytest.approx(1.35), pytest.approx(3.0), None]


def test_recorded_parents_make_branches(tmp_path: Path) -> None:
    """Round 2 left a checkpoint beside the incumbent, round 3 extended it, round 4 did, too, and overtook."""
    rejected = Outcome.REJECTED
    rows = round_rows(events(
        round_data(0), round_data(1, ratio=2.0, parent="r00a1"),
        round_data(2, outcome=rejected, ratio=None, parent="c0", beside_parent=1.5),
        round_data(3, outcome=rejected, ratio=None, parent="r02a1", beside_parent=1.2),
        round_data(4, ratio=1.1, parent="r02a1", beside_parent=1.6),
        round_data(5, outcome=Outcome.CRASHED, ratio=None, parent="r03a1"),
    ))  # fmt: skip
    assert [(row.number, row.parent, row.against, row.is_kept, row.branch) for row in rows] == [
        (0, None, None, True, "a"), (1, 0, 0, True, "a"), (2, 0, 0, True, "b"), (3, 2, 2, True, "b"),
        (4, 2, 1, True, "c"), (5, 3, 3, False, "b"),
    ]  # fmt: skip
    nodes = checkpoint_graph(rows)
    assert [node.ratio for node in nodes] == [
        1.0, 2.0, 1.5, pytest.approx(1.8), pytest.approx(2.2), None
    ], "round 4 was measured beside the incumbent, round 3 beside its parent only"  # fmt: skip
    assert [node.round for node in nodes if node.is_on_path] == [0, 2, 4]
    for name in ("c3", "r03a1"):
        chosen = checkpoint_graph(rows, winner=name)
        assert [node.round for node in chosen if node.is_on_path] == [0, 2, 3], "a winner that was chosen is one"


def test_intervals_of_a_chain_add_up_as_independent_ones_do() -> None:
    rows = round_rows(events(round_data(0), round_data(1, spread=0.03), round_data(2, spread=0.04)))
    last = checkpoint_graph(rows)[-1]
    assert last.ratio == pytest.approx(2.25) and last.ci_low is not None and last.ci_high is not None
    assert math.log(last.ratio / last.ci_low) == pytest.approx(0.05)
    assert math.log(last.ci_high / last.ratio) == pytest.approx(0.05)


def test_what_a_record_holds_too_much_or_too_little_of_is_left_out() -> None:
    """A page of somebody else's artifact is drawn from its journal, whatever is in it."""
    data = round_data(1, ratio=1.5)
    data["record"] |= {
        "spans": {"queue": "much", "http": 0.5}, "attempts": "two", "seconds": None, "analysis": 7,
        "verdict": {"refusals": ["no", {"gate": "scan"}]}, "decision": {"headline": {"ratio": "high"}},
    }  # fmt: skip
    data |= {"spent": [], "step": "none"}
    (_, row) = round_rows(events(round_data(0), data))
    assert (row.spans, row.attempts, row.seconds, row.ratio) == ({"http": 0.5}, 0, 0.0, None)
    assert (row.device_s, row.remark) == (0.0, "7")
    assert row.refusals == ("None/None: None", "scan/None: None")
    broken = [{}, {"key": "p01", "role": "planner", "model": "m", "usage": {"input_tokens": "1"}, "usd": 0}, None]
    found = [Event(seq=number, time_s=0.0, kind="spend", data=each) for number, each in enumerate(broken)]
    assert spent_rows(found) == () and spent_in_all(found, ()).tokens == 0


def test_a_round_whose_path_did_not_run_says_so() -> None:
    data = round_data(1, outcome=Outcome.ACCEPTED, ratio=1.5)
    data["record"]["activation"] = {"state": "not activated", "text": "", "seen": [], "unseen": []}
    (row,) = round_rows(events(data))
    assert (row.activation, row.is_unactivated) == ("not activated", True)
    assert "accepted, not activated" in round_lines([row])[1]


def test_a_record_that_cannot_be_read_is_left_out() -> None:
    wrong = [{"number": 3}, {"record": {"number": "x"}}, {"record": None}]
    assert round_rows([*events(*wrong), Event(seq=9, time_s=0.0, kind="round", data=None)]) == ()
    assert checkpoint_graph(()) == ()


# -- one run


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"overrides": ["agents=codex", "budget.rounds=2", "target.description=a b"]},
         ["command: vibeserve +target=tiny_cpu agents=codex budget.rounds=2 'target.description=a b'"]),
        ({"overrides": []}, ["command: vibeserve +target=tiny_cpu"]),
        ({"overrides": None}, []), ({}, []),
    ],
)  # fmt: skip
def test_the_words_of_the_command_that_began_it_are_told(runs: Runs, data: dict[str, Any], told: list[str]) -> None:
    with runs.journal() as journal:
        journal.append("opened", {"target": "tiny_cpu", "plan_id": "0123456789abcdef", **data})
    words = data.get("overrides")
    assert runs.read().overrides == (None if words is None else tuple(words))
    assert [line for line in runs.lines() if line.startswith("command: ")] == told
    assert [line.strip() for line in brief_lines(runs.read(), now_s=time.time()) if "command: " in line] == told


class Runs:
    """A project with one run."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.state = root / ".vibeserve"
        self.folder = self.state / "runs" / NAME

    def write(self, *rounds: dict[str, Any], rounds_budget: int = 5, **more: Any) -> None:
        with self.journal() as journal:
            budget = {"rounds": rounds_budget, "wall_s": 600.0}
            journal.append("opened", {"target": "tiny_cpu", "plan_id": "0123456789abcdef", "budget": budget})
            for data in rounds:
                journal.append("round", data)
            for kind, data in more.items():
                journal.append(kind, data)

    def journal(self) -> Journal:
        return Journal.open(self.folder / "journal.jsonl")

    def stamp(self, step: str, *, document: Any = None, seconds: float = 12.0) -> None:
        write_document(self.folder / "steps" / step / "stamp.json", {"seconds": seconds, "document": document})

    def read(self) -> RunStatus:
        return read_status(self.folder, state=self.state)

    def lines(self) -> list[str]:
        return page_lines(self.read(), now_s=time.time())

    def call(self, key: str, *, transcript: tuple[Turn, ...] | None = None, **files: str) -> Path:
        folder = self.folder / "agents" / key
        folder.mkdir(parents=True)
        (folder / "prompt.md").write_text("prompt")
        os.utime(folder / "prompt.md", (time.time() - 30, time.time() - 30))
        for name, text in files.items():
            (folder / name.replace("_", ".")).write_text(text)
        if transcript is not None:
            write_document(folder / "transcript.json", Transcript(key=key, turns=transcript))
        return folder


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.setenv("VIBESERVE_LEASES", str(tmp_path / "leases"))
    return Runs(tmp_path)


@pytest.fixture
def owned(runs: Runs) -> Iterator[None]:
    with own_run(runs.folder, run=NAME, progress=QuietProgress()):
        yield


def test_the_page_of_a_run_that_searches(runs: Runs, owned: None) -> None:
    runs.write(round_data(0), round_data(1), round_data(2, outcome=Outcome.CRASHED, ratio=None))
    for step in ("weights", "reference", "baselines"):
        runs.stamp(step)
    lines = runs.lines()
    assert lines[0].startswith(f"runs/{NAME}  running in pid {os.getpid()}, 4 events, last: round 2 ended: crashed, ")
    assert lines[1] == (
        "steps: weights 12 s, reference 12 s, baselines 12 s, synthesize (under way), certify (waits), package (waits)"
    )
    assert lines[2:5] == [
        "now: synthesize, between rounds",
        "incumbent: round 1 'keep the KV cache in blocks (1)', x1.5 [1.43, 1.58] of the seed",
        "left: search at most 3 min (3 rounds of 60 s); the rest is unknown: certification has not run in this run, so "
        "nothing of it was measured",
    ]  # fmt: skip
    assert lines[6].split() == ["round", "from", "proposal", "outcome", "ratio", "[95%]", "s", "attempts"]
    assert lines[8].split()[:2] == ["1", "0"] and "accepted  1.5 [1.43, 1.58]" in lines[8]
    assert lines[9].split()[-4:] == ["crashed", "-", "60", "1"]
    assert "    against a competent baseline: baselines are measured when the winner is certified" in lines
    assert "spent: 3 min in rounds, 90 s of them measuring" in lines


def test_branches_have_a_column_and_old_rounds_are_left_to_json(runs: Runs) -> None:
    runs.write(round_data(0), round_data(1, parent="c0"), *(round_data(number, parent="c0") for number in range(2, 15)))
    lines = runs.lines()
    assert "3 earlier rounds: --json has them" in lines
    (head,) = [line for line in lines if line.startswith("round")]
    assert head.split()[:3] == ["round", "branch", "from"]
    assert len(runs.read().rounds) == 15


@pytest.mark.parametrize(
    ("rounds", "budget", "line"),
    [
        ([round_data(0)], {"rounds": 2}, "unknown: no round of this run has ended yet; certification has not run"),
        ([round_data(0), round_data(1)], None, "unknown: the journal does not say how many rounds the run may t"),
        ([round_data(0), round_data(1, seconds=90.0)], {"rounds": 3}, "search at most 3 min (2 rounds of 90 s); "),
    ],
)  # fmt: skip
def test_what_was_not_measured_is_unknown_with_its_reason(
    runs: Runs, owned: None, rounds: list[dict[str, Any]], budget: dict[str, int] | None, line: str
) -> None:
    with runs.journal() as journal:
        journal.append("opened", {"target": "t", "budget": budget} if budget else {"target": "t"})
        for data in rounds:
            journal.append("round", data)
    eta = runs.read().eta
    assert eta is not None and eta.line().startswith(line) and eta.total_s is None


def test_what_is_left_follows_what_people_changed_and_what_was_measured(runs: Runs, owned: None) -> None:
    handled = {
        "schema_version": 1, "number": 1, "command": "budget", "arguments": {"rounds": 3}, "who": "person", "at_s": 0.0,
        "phase": "proposal", "round": 1, "effect": "", "refused": "", "item": "",
    }  # fmt: skip
    runs.write(round_data(0), round_data(1, seconds=40.0), control=handled)
    eta = runs.read().eta
    assert eta is not None and (eta.rounds_left, eta.search_s, eta.total_s) == (2, 80.0, None)
    runs.stamp("certify", seconds=100.0)
    eta = runs.read().eta
    assert eta is not None and (eta.total_s, eta.line()) == (180.0, "about 3 min")
    with runs.journal() as journal:
        journal.append("synthesized", {"winner": "r01a1"})
        journal.append("certified", {"passed": True})
    eta = runs.read().eta
    assert eta is not None and eta.total_s == 0.0


def test_a_certified_run_stands_beside_its_competent_baselines(runs: Runs) -> None:
    row = {"name": "peer", "version": "1", "precision": "same_bytes", "ratio": 1.4, "ci_low": 1.3, "ci_high": 1.5}
    metrics = [
        {"role": "headline", "baselines": [{**row, "baseline_class": "competent"},
                                           {**row, "baseline_class": "naive", "name": "slow"},
                                           {**row, "baseline_class": "competent", "ratio": None}]},
        {"role": "guard", "baselines": [{**row, "baseline_class": "competent", "name": "other"}]},
    ]  # fmt: skip
    runs.write(round_data(0), round_data(1), synthesized={"winner": "r01a1"})
    runs.stamp("certify", document={"metrics": metrics})
    assert "    against peer 1 (same bytes): x1.4 [1.3, 1.5], certified" in runs.lines()
    incumbent = runs.read().incumbent
    assert incumbent is not None and [each.name for each in incumbent.competent] == ["peer"]
    runs.stamp("certify", document={"metrics": []})
    assert "    against a competent baseline: no competent baseline was measured" in runs.lines()


def test_ideas_and_who_had_them(runs: Runs) -> None:
    runs.write(round_data(0))
    with runs.journal() as journal:
        book = PlanningBook(journal)
        for number in range(8):
            book.add(f"idea {number}", who="person ada", round=0)
    lines = runs.lines()
    assert "backlog: 8 open" in lines and "    b1 open: idea 0 (person ada)" in lines
    assert sum("idea" in line and line.startswith("    b") for line in lines) == 6


# -- the agent


@pytest.mark.parametrize(
    ("role", "phase"),
    [("planner", Phase.PROPOSING), ("implementer", Phase.IMPLEMENTING), ("judge", Phase.REVIEWING),
     ("evaluator", Phase.EXPLAINING)],
)  # fmt: skip
def test_the_agent_at_work_is_named_with_its_last_lines(runs: Runs, owned: None, role: str, phase: Phase) -> None:
    key = f"p01-{role}" if role == "planner" else f"r01a1-{role}"
    runs.write(round_data(0), spend=spend(key))
    for step in ("weights", "reference", "baselines"):
        runs.stamp(step)
    said = (
        '{"type": "message", "content": [{"type": "text", "text": "I look at\\u001b[31m attention.py"}]}\nplain words\n'
    )
    runs.call(key, client_log=said)
    status = runs.read()
    assert status.call is not None and status.phase is phase
    assert (status.call.role, status.call.state, status.call.backend, status.call.tokens) == (
        role, "under way", "openai", 100
    )  # fmt: skip
    assert status.call.lines == ("I look at [31m attention.py", "plain words"), "nothing that a terminal obeys"
    (line,) = [line for line in runs.lines() if line.startswith("agent: ")]
    assert line.startswith(f"agent: {role} {key} (openai m-1), under way since 3") and line.endswith("100 tokens")


def test_without_a_process_the_call_was_interrupted(runs: Runs) -> None:
    runs.write(round_data(0))
    runs.call("p01-planner")
    status = runs.read()
    assert status.call is not None and (status.call.state, status.call.lines) == ("interrupted", ())
    assert status.phase is Phase.NONE


def test_before_its_first_answer_an_agent_is_known_by_who_was_seated(runs: Runs, owned: None) -> None:
    with runs.journal() as journal:
        journal.append("opened", {"target": "t", "agents": {"planner": "codex", "judge": "playbook"}})
    runs.call("p01-planner")
    call = runs.read().call
    assert call is not None and (call.backend, call.model, call.tokens) == ("codex", "", 0)
    with runs.journal() as journal:
        journal.append("control", handled("backend", roles={"planner": {"backend": "claude"}}))
    call = runs.read().call
    assert call is not None and call.backend == "claude"


def test_a_call_that_is_over_shows_its_transcript(runs: Runs, owned: None) -> None:
    turns = (Turn(kind="tool_call", text="ls", name="shell"), Turn(kind="message", text="done\nand more"))
    runs.write(round_data(0))
    runs.call("p01-planner", transcript=turns)
    (runs.folder / "agents" / "not a call").mkdir()
    call = runs.read().call
    assert call is not None and call.state == "done"
    assert call.lines == ("tool_call shell: ls", "message: done and more")


def test_a_call_that_is_asked_again_is_under_way(runs: Runs, owned: None) -> None:
    runs.write(round_data(0))
    folder = runs.call("p01-planner", transcript=(Turn(kind="message", text="first"),))
    later = time.time() + 5
    os.utime(folder / "prompt.md", (later, later))
    call = runs.read().call
    assert call is not None and call.state == "under way"


def test_long_records_are_read_at_their_end_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "traffic.jsonl").write_text(
        json.dumps({"text": "x" * 90_000}) + "\n" + json.dumps({"text": "end"}) + "\n"
    )
    assert last_lines(tmp_path, is_open=True) == ("end",)
    (tmp_path / "traffic.jsonl").unlink()
    (tmp_path / "secret").write_text("not ours")
    (tmp_path / "client.log").symlink_to(tmp_path / "secret")
    assert last_lines(tmp_path, is_open=True) == ()


# -- states and waiting


def handled(command: str, number: int = 1, **arguments: Any) -> dict[str, Any]:
    return {
        "schema_version": 1, "number": number, "command": command, "arguments": arguments, "who": "person ada",
        "at_s": 0.0, "phase": "proposal", "round": 1, "effect": "", "refused": "", "item": "",
    }  # fmt: skip


def test_a_pause_a_stop_and_their_end(runs: Runs, owned: None) -> None:
    runs.write(round_data(0), control=handled("pause", why="lunch"))
    status = runs.read()
    assert status.state is RunState.PAUSED
    assert [(each.what, each.text) for each in status.waits] == [
        ("pause", "paused by person ada: lunch; `vibeserve steer resume` goes on")
    ]
    with runs.journal() as journal:
        journal.append("control", handled("stop", 2))
    assert runs.read().state is RunState.STOPPING
    assert "holds: stopped by person ada" in runs.lines()
    with runs.journal() as journal:
        journal.append("synthesized", {"winner": "r00a1"})
    assert runs.read().state is RunState.RUNNING, "what is left is certification"


def test_requests_and_devices_that_it_waits_for(runs: Runs, owned: None) -> None:
    runs.write(round_data(0))
    submit(runs.folder / CONTROL, command="budget", arguments={"rounds": 9}, who="person bob")
    (runs.folder / CONTROL / "000002.json").write_text("{}")
    lease = DeviceLease([Device(name="cpu", title="the CPU")], root=lease_dir(), run=NAME, progress=QuietProgress())
    for step in ("weights", "reference", "baselines"):
        runs.stamp(step)
    with lease.exclusive("round 1"):
        status = runs.read()
        assert status.phase is Phase.MEASURING
    (broken, asked) = sorted((each.text for each in status.waits), reverse=True)
    assert asked == "1 of person bob: budget rounds=9"
    assert broken.startswith("2 of unknown: it is no request: ")


def test_a_waiting_device_is_told(runs: Runs, owned: None, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.write(round_data(0))
    lease = DeviceLease([Device(name="cpu", title="the CPU")], root=lease_dir(), run=NAME, progress=QuietProgress())
    with lease.exclusive("round 1"):
        (path,) = (lease_dir() / "cpu").glob("*.lease.json")
        document = json.loads(path.read_text())
        path.write_text(json.dumps({**document, "is_held": False}))
        assert [(each.what, each.text) for each in runs.read().waits] == [("device", "cpu (exclusive), for round 1")]


# -- the document


def test_the_document_satisfies_its_schema_whatever_the_run_is_like(
    runs: Runs, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    long_run(runs.state / "runs" / "long-0123456789abcdef")
    (runs.state / "runs" / "damaged").mkdir()
    (runs.state / "runs" / "damaged" / "journal.jsonl").write_text("rubbish\n" * 2)
    (runs.state / "runs" / "empty").mkdir()
    (runs.state / "runs" / "empty" / "journal.jsonl").write_text("")
    runs.write(round_data(0), control=handled("pause"))
    runs.call("p01-planner", transcript=())
    lease = DeviceLease([Device(name="cpu", title="the CPU")], root=lease_dir(), run=NAME, progress=QuietProgress())
    with own_run(runs.folder, run=NAME, progress=QuietProgress()), lease.shared("synthesize"):
        assert main(["--dir", str(tmp_path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [error.message for error in Draft202012Validator(status_schema()).iter_errors(document)] == []
    by_name = {run["run"]: run for run in document["runs"]}
    assert len(by_name) == 4 and len(document["leases"]) == 1
    assert len(by_name["runs/long-0123456789abcdef"]["rounds"]) == 40
    del document["runs"][0]["state"]
    assert not Draft202012Validator(status_schema()).is_valid(document)


def test_spend_is_told_by_role_and_of_the_newest_rounds(runs: Runs) -> None:
    long_run(runs.folder, num_rounds=12)
    lines = runs.lines()
    start = lines.index("spent: 270600 tokens, 2.3100 USD; 13 min in rounds, 7 min of them measuring")
    assert lines[start + 1 : start + 3] == [
        "    implementer (m-1): 11 requests, 220000 tokens, 2.2000 USD",
        "    planner (m-1): 11 requests, 50600 tokens, 0.1100 USD",
    ]
    assert [line.split()[:3] for line in lines[start + 3 :]] == [
        ["round", str(number), role] for number in (9, 10, 11) for role in ("implementer", "planner")
    ]


def test_one_run_is_named_by_its_target(runs: Runs, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    runs.write(round_data(0))
    long_run(runs.state / "runs" / "long-0123456789abcdef")
    assert main(["tiny", "--dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"runs/{NAME}  stopped, 2 events") and "long" not in out
    assert main(["tiny", "--dir", str(tmp_path), "--json"]) == 0
    assert [run["run"] for run in json.loads(capsys.readouterr().out)["runs"]] == [f"runs/{NAME}"]
    with pytest.raises(SpecError, match="status: no run 'nothing' here"):
        main(["nothing", "--dir", str(tmp_path)])


def test_an_unfinished_run_says_in_the_list_what_it_is_at(
    runs: Runs, owned: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    runs.write(round_data(0), round_data(1))
    assert main(["--dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "    now: weights"
    assert lines[2].startswith("    incumbent: round 1 '") and lines[3].startswith("    left: search at most 4 min (4 ")


@pytest.mark.parametrize("words", [["--watch"], ["--watch", "--json"]])
def test_watching_needs_a_terminal(runs: Runs, words: list[str], tmp_path: Path) -> None:
    runs.write(round_data(0))
    with pytest.raises(SpecError, match=r"status: --watch (draws on a terminal|and --json do not go together)"):
        main([*words, "--dir", str(tmp_path)])


def test_rows_are_what_they_were_made_from() -> None:
    (seed, row) = round_rows(events(round_data(0), round_data(1)))
    assert (seed.parent, seed.title, seed.is_kept) == (None, "", True)
    assert replace(row, spans={}).evidence == "the span decode.linear shrinks by a third"
    assert (row.device_s, row.origin, row.branch, row.forecast_ratio) == (30.0, "agent:m", "", 1.4)
