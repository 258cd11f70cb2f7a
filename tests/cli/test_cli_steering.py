"""`vibeserve steer`, `backlog` and `note` from the command line: with an owner, without one, too late, and wrong."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from loop_fakes import LIMIT, Library, facts
from steering_rig import DOCUMENT

from vibeserve.agents.schemas import proposal_of
from vibeserve.cli.main import main
from vibeserve.control import CONTROL, Phase, Site, Steering, handled_of
from vibeserve.control.offer import announce, offer_of
from vibeserve.journal import Journal, read_events
from vibeserve.lease import own_run
from vibeserve.planning import PlanningBook, backlog_of, memory_of
from vibeserve.progress import QuietProgress
from vibeserve.skills import load_scaffold
from vibeserve.spec import Spec
from vibeserve.status import head_line, run_statuses

RUN = "tiny_cpu-0123456789abcdef"


@dataclass
class Project:
    """A project with one run whose search has begun."""

    root: Path
    capsys: pytest.CaptureFixture[str]
    monkeypatch: pytest.MonkeyPatch

    def __post_init__(self) -> None:
        self.library = Library(self.root / "library")
        self.library.add("paged-kv", parameters={"block": LIMIT})
        self.make(RUN)

    def make(self, name: str, **more: Any) -> None:
        with self.journal(name) as journal:
            journal.append("opened", {"target": name.rpartition("-")[0], "plan_id": name.rpartition("-")[2], **more})
            offer = offer_of(
                skills=self.library.skills, scaffold=load_scaffold(self.library.scaffold), facts=facts()
            )  # fmt: skip
            announce(journal, offer)

    def folder(self, name: str = RUN) -> Path:
        return self.root / ".vibeserve" / "runs" / name

    def journal(self, name: str = RUN) -> Journal:
        return Journal.open(self.folder(name) / "journal.jsonl")

    def events(self) -> Any:
        return read_events(self.folder() / "journal.jsonl")

    def append(self, kind: str, data: Any = None) -> None:
        with self.journal() as journal:
            journal.append(kind, data)

    @contextmanager
    def owned(self) -> Iterator[None]:
        """A process that is alive carries the run out."""
        with own_run(self.folder(), run=RUN, progress=QuietProgress()):
            yield

    def run(self, *words: str, stdin: str = "") -> tuple[int, str, str]:
        """(exit code, stdout, stderr)"""
        self.monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        code = main([*words, "--dir", str(self.root)])
        return code, *self.capsys.readouterr()

    def requests(self) -> list[tuple[str, dict[str, Any], str]]:
        found = [json.loads(path.read_text()) for path in sorted((self.folder() / CONTROL).glob("*.json"))]
        return [(each["command"], each["arguments"], each["who"]) for each in found]


@pytest.fixture
def project(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Project:
    return Project(tmp_path, capsys, monkeypatch)


# -- steer


@pytest.mark.parametrize(
    ("words", "command", "arguments"),
    [
        (["pause"], "pause", {}),
        (["pause", "--why", "lunch"], "pause", {"why": "lunch"}),
        (["resume"], "resume", {}),
        (["stop", "--why", "good enough"], "stop", {"why": "good enough"}),
        (
            ["constrain", "--ban", "paged-kv", "--only", "block=4,16", "--lift", "max_num_seqs"], "constrain",
            {"ban": ["paged-kv"], "only": {"block": [4, 16]}, "lift": ["max_num_seqs"]},
        ),
        (["veto", "b1", "--why", "x"], "veto", {"item": "b1", "why": "x"}),
        (["pin", "block=8"], "pin", {"values": {"block": 8}, "lift": []}),
        (["pin", "--lift", "block"], "pin", {"values": {}, "lift": ["block"]}),
        (["budget", "rounds=8", "wall_s=3600", "usd=2.5"], "budget", {"rounds": 8, "wall_s": 3600, "usd": 2.5}),
        (
            ["backend", "planner=openai", "planner.model=m", "judge=codex"], "backend",
            {"roles": {"planner": {"backend": "openai", "model": "m"}, "judge": {"backend": "codex"}}},
        ),
    ],
)  # fmt: skip
def test_each_action_is_a_request(project: Project, words: list[str], command: str, arguments: dict[str, Any]) -> None:
    code, out, _ = project.run("steer", *words, "--by", "ada")
    assert code == 0 and out.startswith(f"request 1 to {RUN}: {command}")
    assert project.requests() == [(command, arguments, "person ada")]


def test_without_an_owner_it_waits_and_says_so(project: Project) -> None:
    _, out, _ = project.run("steer", "pause")
    assert out.splitlines() == [
        f"request 1 to {RUN}: pause",
        "nobody carries the run out now: it waits, and is carried out when the run goes on",
        "next: start the same command again (`vibeserve +target=tiny_cpu` and its overrides)",
    ]
    assert project.requests() == [("pause", {}, "person")]
    assert [event.kind for event in project.events()] == ["opened", "steerable"], "the journal is not ours to write"


def test_where_the_words_of_its_command_are_kept_the_whole_command_is_named(project: Project) -> None:
    project.make("small-0123456789abcdef", overrides=["agents=codex", "target.description=a b"])
    _, out, _ = project.run("steer", "small", "pause")
    command = "vibeserve +target=small agents=codex 'target.description=a b'"
    assert out.splitlines()[-1] == f"next: start the same command again (`{command}`)"


def test_with_an_owner_it_says_who_carries_it_out_and_when(project: Project) -> None:
    with project.owned():
        _, out, _ = project.run("steer", RUN, "pause")
        code, document, _ = project.run("steer", RUN, "resume", "--json")
    assert f"pid {os.getpid()} carries it out at its next safe point: before a step of the build or a proposal" in out
    assert code == 0 and json.loads(document) == {
        "schema_version": 1, "run": RUN, "number": 2, "command": "resume", "state": "waiting", "arguments": {},
        "owner_pid": os.getpid(),
    }  # fmt: skip


@pytest.mark.parametrize("source", ["file", "stdin"])
def test_a_proposal_comes_from_a_file_or_standard_input(project: Project, source: str) -> None:
    document = {**DOCUMENT, "components": ["paged-kv"], "parameters": {"block": 16}}
    del document["what_changed"]
    path = project.root / "proposal.json"
    path.write_text(json.dumps(document))
    given = (str(path), "") if source == "file" else ("-", json.dumps(document))
    code, out, _ = project.run("steer", "propose", given[0], stdin=given[1])
    assert (code, out.splitlines()[0]) == (0, f"request 1 to {RUN}: propose adopt third at once")
    ((_, arguments, _),) = project.requests()
    assert arguments["proposal"]["parameters"] == [{"name": "block", "value": 16}]
    assert arguments["proposal"]["what_changed"] == ""


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["steer", "evaluation.min_effect=0"], "steer: evaluation.min_effect=0: that is a new plan"),
        (["steer", RUN, "workload.headline_load=c1"], "steer: workload.headline_load=c1: that is a new plan"),
        (["steer", "budget", "sandbox.tier=C"], "steer: sandbox.tier: that is a new plan"),
        (["steer", "pin", "model.dtype=int4"], "steer: model.dtype: that is a new plan"),
        (["steer", "constrain", "--only", "goals[0].min_ratio=1"], "steer: goals[0].min_ratio: that is a new plan"),
        (["steer", "backend", "baseline.vllm=playbook"], "that is a new plan"),
        (["steer", "budget", "level=quick"], "steer: level: that is a new plan"),
        (["steer", "budget.level=quick"], "steer: budget.level=quick: that is a new plan"),
        (["steer", "budget", "attempts=9"], "budget does not know 'attempts'; valid: rounds, wall_s, tokens, usd"),
        (["steer", "budget", "rounds=many"], "budget rounds: expected a whole number, got 'many'"),
        (["steer", "budget", "rounds"], "steer: rounds: is not NAME=VALUE"),
        (["steer", "budget"], "the following arguments are required: NAME=VALUE"),
        (["steer", "constrain"], "it asks for nothing; valid: ban, only, lift"),
        (["steer", "constrain", "--ban", "pagedkv"], "no component 'pagedkv'; did you mean 'paged-kv'?; valid: "),
        (["steer", "pin", "block=99"], "parameter block must be from 1 to 64, got 99"),
        (["steer", "pin", "blok=8"], "nothing that applies here has a parameter 'blok'; did you mean 'block'?"),
        (["steer", "backend", "chef=openai"], "'chef' is not valid; valid: planner, implementer, judge, evaluator"),
        (["steer", "backend", "judge=replay"], "'replay' is not valid; valid: playbook, openai, codex, claude"),
        (["steer", "veto", "current"], f"steer veto: no idea is being tried in {RUN}"),
        (["steer", "propose", "absent.json"], "steer propose: absent.json: No such file or directory"),
        (["steer", "propose", "-"], "steer propose: standard input is not one JSON document"),
        (["steer", "puase"], "steer: argument action: 'puase' is not valid; did you mean 'pause'? valid: pause, "),
        (["steer", RUN, "puase"], "'puase' is not valid; did you mean 'pause'?"),
        (["steer"], "steer: the following arguments are required: action"),
        (["steer", "nothing_here", "pause"], "steer: no run 'nothing_here' here"),
        (["backlog", "abandon", "b1"], "the following arguments are required: --why"),
        (["backlog", "park", "b7"], "there is no item 'b7' in the backlog; valid: none"),
        (["note", "edit", "n7", "text"], "there is no note 'n7'; valid: none"),
        (["note", "add", "x" * 501], "text has 501 characters, at most 500"),
        (["note", "forget"], "note: argument action: 'forget' is not valid; valid: list, add, edit, remove"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_exit_2_with_what_is_valid(project: Project, words: list[str], fault: str) -> None:
    code, out, error = project.run(*words)
    assert code == 2 and out == ""
    assert fault in error
    assert [command for command, _, _ in project.requests() if command not in ("backlog", "note")] == []


def test_the_current_idea_is_vetoed_by_its_item(project: Project) -> None:
    with project.journal() as journal:
        PlanningBook(journal).start(proposal_of({"proposal": DOCUMENT}, proposal_id="p001"), number=1, keys=())
    assert project.run("steer", "veto", "current")[0] == 0
    assert project.requests() == [("veto", {"item": "b1"}, "person")]


def test_a_run_that_certifies_takes_pauses_and_nothing_else(project: Project) -> None:
    project.append("synthesized", {"winner": "r01a1"})
    code, _, error = project.run("steer", "budget", "rounds=9")
    assert code == 2 and f"steer: the search of {RUN} has ended: its winner is being certified" in error
    assert "valid now: pause, resume, list" in error
    assert project.run("steer", "pause")[0] == 0


@pytest.mark.parametrize(
    "words", [["steer", "pause"], ["steer", "stop"], ["backlog", "add", "an idea"], ["note", "add", "a note"]]
)
def test_a_finished_run_takes_nothing(project: Project, words: list[str]) -> None:
    project.append("packaged", {"path": "x"})
    code, _, error = project.run(*words)
    assert code == 2 and f"{RUN} is finished" in error
    assert project.requests() == []


def test_the_list_tells_what_was_asked_and_what_holds(project: Project) -> None:
    assert project.run("steer", "list")[1] == f"nothing was asked of {RUN}\n"
    project.run("steer", "constrain", "--ban", "paged-kv", "--by", "ada")
    project.run("steer", "resume")
    with project.journal() as journal:
        steering = Steering(journal, spec=Spec())
        state = project.library.state()
        steering.safe_point(Site(phase=Phase.PROPOSAL, round=2, state=state))
    project.run("steer", "stop")
    lines = project.run("steer", "list")[1].splitlines()
    assert [line.split()[0] for line in lines] == ["number", "1", "2", "3", "holds:"]
    assert "constrain ban paged-kv  person ada  applied  round 2  from the next proposal on" in lines[1]
    assert "refused  round 2  the run is not paused" in lines[2] and lines[3].endswith("waiting  -")
    assert lines[4] == "holds: component paged-kv is banned"
    document = json.loads(project.run("steer", "list", "--json")[1])
    assert [row["state"] for row in document["requests"]] == ["applied", "refused", "waiting"]
    assert document["holds"] == ["component paged-kv is banned"]


def test_status_shows_a_pause(project: Project) -> None:
    def states() -> list[tuple[str, str]]:
        (status,) = run_statuses(project.root / ".vibeserve")
        return [(status.state.value, head_line(status, now_s=status.last_at_s))]

    steering_event = {
        "schema_version": 1, "number": 1, "command": "pause", "arguments": {}, "who": "person", "at_s": 0.0,
        "phase": "proposal", "round": 1, "effect": "", "refused": "", "item": "",
    }  # fmt: skip
    project.append("control", steering_event)
    ((state, _),) = states()
    assert state == "stopped", "nobody is there to wait"
    with project.owned():
        ((state, line),) = states()
        assert state == "paused" and f"paused in pid {os.getpid()}" in line and "last: pause, 0 s ago" in line
        project.append("control", {**steering_event, "number": 2, "command": "resume"})
        assert states()[0][0] == "running"


# -- which run


def test_a_run_is_named_by_its_target_or_the_beginning_of_its_name(project: Project) -> None:
    for name in (RUN, f"runs/{RUN}", "tiny_cpu", "tiny_cpu-0123"):
        assert project.run("steer", name, "pause")[1].startswith(f"request {len(project.requests())} to {RUN}")


def test_of_several_runs_the_one_that_is_alive_is_meant(project: Project) -> None:
    project.make("other_cpu-ffff")
    code, _, error = project.run("steer", "pause")
    assert code == 2 and "steer: which run?" in error and f"runs: other_cpu-ffff, {RUN}" in error
    with project.owned():
        assert project.run("steer", "pause")[1].startswith(f"request 1 to {RUN}")
    project.make("tiny_cpu-fedc")
    code, _, error = project.run("steer", "tiny_cpu", "pause")
    assert code == 2 and "steer: 'tiny_cpu' means 2 runs" in error


def test_another_runs_damaged_journal_is_in_nobodys_way(project: Project) -> None:
    project.make("broken_cpu-ffff")
    path = project.folder("broken_cpu-ffff") / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b"opened", b"opaned"))
    assert project.run("steer", "tiny_cpu", "pause")[0] == 0
    assert project.run("status", "tiny_cpu")[0] == 0
    code, _, error = project.run("steer", "broken_cpu", "pause")
    assert code == 5 and "broken_cpu-ffff/journal.jsonl is damaged at line 1" in error
    code, out, _ = project.run("status", "broken_cpu")
    assert code == 0 and "is damaged at line 1" in out, "status says what is wrong with it"


def test_a_project_without_a_run_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["backlog", "list", "--dir", str(tmp_path)]) == 2
    assert f"backlog: no run here\n  there is none in {tmp_path / '.vibeserve' / 'runs'}" in capsys.readouterr().err
    assert main(["note", "list", "--dir", str(tmp_path / "absent")]) == 2
    assert "note: --dir " in capsys.readouterr().err


# -- backlog and note


def test_without_an_owner_an_edit_is_journalled_here(project: Project) -> None:
    code, out, _ = project.run("backlog", "add", "quantise the cache", "--mechanism", "8 bits", "--by", "ada")
    assert (code, out) == (
        0, f"b1 is open; nobody carries {RUN} out now, so it was written to its journal here\n",
    )  # fmt: skip
    for words in (["park", "b1"], ["reopen", "b1"], ["abandon", "b1", "--why", "the gate refuses 4 bits"]):
        assert project.run("backlog", *words)[0] == 0
    item = backlog_of(project.events()).items["b1"]
    assert (item.state.value, item.last.why, item.num_changes) == ("abandoned", "the gate refuses 4 bits", 4)
    assert item.opened_by == "person ada"
    handled = handled_of(project.events())
    assert [(done.number, done.phase, done.command) for done in handled] == [
        (n, "stopped", "backlog") for n in range(1, 5)
    ]
    assert not (project.folder() / "owner.json").exists()


def test_with_an_owner_an_edit_is_a_request_to_it(project: Project) -> None:
    with project.owned():
        code, out, _ = project.run("note", "add", "two cores only")
    assert code == 0 and out.splitlines() == [
        f"request 1 to {RUN}: note add two cores only",
        "who carries the run out takes it in at its next safe point; `vibeserve steer list` says how",
    ]
    assert memory_of(project.events()).notes == {}
    with project.journal() as journal:
        Steering(journal, spec=Spec()).safe_point(Site(phase=Phase.CERTIFICATION, round=2))
    assert {key: note.text for key, note in memory_of(project.events()).notes.items()} == {"n1": "two cores only"}


def test_an_edit_beside_a_run_that_has_just_started_waits_for_it(project: Project) -> None:
    with project.owned():
        (project.folder() / "owner.json").unlink()  # it has the lock, and has not said who it is
        out = project.run("note", "add", "a note", "--json")[1]
    assert json.loads(out)["state"] == "waiting"
    assert memory_of(project.events()).notes == {}


def test_an_edit_that_is_refused_is_told_and_kept(project: Project) -> None:
    project.run("backlog", "add", "an idea")
    project.run("backlog", "done", "b1")
    code, _, error = project.run("backlog", "done", "b1")
    assert code == 2 and "b1 is done already" in error
    assert handled_of(project.events())[-1].refused == "b1 is done already"


def test_edits_by_a_verb_do_not_carry_out_what_waits_for_the_run(project: Project) -> None:
    project.run("steer", "pause")
    project.run("note", "add", "a note")
    assert [(done.number, done.command) for done in handled_of(project.events())] == [(2, "note")]


def test_backlog_and_notes_are_listed(project: Project) -> None:
    assert project.run("backlog", "list")[1] == f"no idea in {RUN}\n"
    assert project.run("note", "list")[1] == f"no note in {RUN}\n"
    project.run("backlog", "add", "an idea", "--why", "somebody said so")
    project.run("backlog", "add", "another")
    project.run("backlog", "park", "b2")
    project.run("note", "add", "first")
    project.run("note", "edit", "n1", "better")
    project.run("note", "add", "second")
    project.run("note", "remove", "n2")
    assert [line.split()[:2] for line in project.run("backlog", "list")[1].splitlines()] == [
        ["item", "state"], ["b1", "open"], ["b2", "parked"],
    ]  # fmt: skip
    assert "b2" not in project.run("backlog", "list", "--state", "open")[1]
    assert project.run("backlog", "list", "--state", "done")[1] == f"no done idea in {RUN}\n"
    assert project.run("note", "list")[1].splitlines()[1].split() == ["n1", "0", "person", "better"]
    items = json.loads(project.run("backlog", "list", "--json")[1])["items"]
    assert [(row["item"], row["state"], row["opened_by"]) for row in items] == [
        ("b1", "open", "person"), ("b2", "parked", "person"),
    ]  # fmt: skip
    notes = json.loads(project.run("note", "list", "--json")[1])["notes"]
    assert [(row["note"], row["text"]) for row in notes] == [("n1", "better")]
    added = json.loads(project.run("note", "add", "third", "--json")[1])
    assert (added["state"], added["effect"]) == ("applied", "n3 is kept")


@pytest.mark.parametrize("verb", ["steer", "backlog", "note"])
def test_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    from vibeserve.cli import ideas, steering

    actions = {"steer": steering.ACTIONS, "backlog": ideas.BACKLOG_ACTIONS, "note": ideas.NOTE_ACTIONS}[verb]
    for words in ([], *([action] for action in actions)):
        with pytest.raises(SystemExit) as ended:
            main([verb, *words, "--help"])
        assert ended.value.code == 0
        assert f"usage: vibeserve {' '.join([verb, *words])}" in capsys.readouterr().out


DOCUMENT_PATH = Path(__file__).resolve().parents[2] / "docs/steering.md"


def test_the_commands_of_the_document_are_taken(project: Project) -> None:
    """Up to what this project does not have: its components, items and notes."""
    lines = re.findall(r"^vibeserve (steer|backlog|note) (.+?)(?:\s+#.*)?$", DOCUMENT_PATH.read_text(), re.MULTILINE)
    assert len(lines) > 15
    absent = ("no component", "has a parameter", "must be from 1 to 1", "no item", "no note", "proposal.json: No such")
    for verb, rest in lines:
        code, _, error = project.run(verb, *shlex.split(rest))
        assert code == 0 or any(words in error for words in absent), error


def test_the_proposal_of_the_document_is_one(project: Project) -> None:
    (block,) = re.findall(r"```json\n(.*?)```", DOCUMENT_PATH.read_text(), re.DOTALL)
    text = block.replace("continuous-batching", "paged-kv").replace("max_num_seqs", "block")
    code, _, error = project.run("steer", "propose", "-", stdin=text)
    assert code == 0, error
