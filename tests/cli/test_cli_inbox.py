"""`vibeserve inbox`: what a player sees, submits, and is told."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from vibeserve import spec
from vibeserve.agents.mailbox import ExternalBackend, RequestFolder
from vibeserve.agents.requests import AgentRequest, CallLimits
from vibeserve.agents.schemas import SCHEMAS
from vibeserve.cli.main import main
from vibeserve.core.documents import to_data
from vibeserve.core.nouns import Decision, Outcome, Proposal, RatioInterval, RefusedAttempt, Round
from vibeserve.core.paths import data_dir
from vibeserve.errors import AgentInfraError
from vibeserve.journal import Journal
from vibeserve.lease import own_run
from vibeserve.progress import QuietProgress

IMPLEMENTER, JUDGE = "r01a1-implementer", "r01a1-judge"
DONE = {"status": "done", "summary": "made it faster", "activation_evidence": "", "risks": ""}
PASSED = {"verdict": "pass", "summary": "read every line", "reasons": []}


class Project:
    """A repository with runs that ask. Nobody waits, unless `waiting` is entered."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def mailbox(self, run: str = "tiny-1") -> Path:
        return self.root / ".vibeserve" / "runs" / run / "mailbox"

    def folder(self, key: str = IMPLEMENTER, run: str = "tiny-1") -> RequestFolder:
        return RequestFolder(self.mailbox(run) / key)

    def ask(self, key: str = IMPLEMENTER, *, run: str = "tiny-1", deadline_s: float = 5400.0, **other: Any) -> None:
        """Open a request, as a run does that is killed at once."""
        role = key.split("-")[1]
        workspace = self.root / ".vibeserve" / "runs" / run / "workspaces" / "r01a1"
        workspace.mkdir(parents=True, exist_ok=True)
        (workspace / "service.yaml").write_text("argv: []\n")
        given: dict[str, Any] = {
            "role": role, "key": key, "prompt": f"Work in {workspace}.\nA log: \x1b[2J\x07.", "workspace": workspace,
            "is_writable": role == "implementer", "output_schema": SCHEMAS[role], "record_dir": self.root / "calls",
            "limits": CallLimits(timeout_s=60.0, max_turns=1), "read_only": (self.root / "skills",),
        }  # fmt: skip
        declared = spec.Agents(backend="external", deadline_s=deadline_s)
        agent = spec.resolve_role(declared, role)

        class KilledError(Exception):
            pass

        def kill(text: str) -> None:
            raise KilledError

        backend = ExternalBackend(agent, declared, mailbox=self.mailbox(run), tell=kill)
        with pytest.raises(KilledError):
            backend.run(AgentRequest(**{**given, **other}))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)
    return Project(tmp_path)


class Told:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def inbox(capsys: pytest.CaptureFixture[str], *argv: str) -> Told:
    code = main(["inbox", *argv])
    captured = capsys.readouterr()
    return Told(code, captured.out, captured.err)


def answer(tmp_path: Path, output: Any = DONE) -> str:
    path = tmp_path / "answer.json"
    path.write_text(output if isinstance(output, str) else json.dumps(output))
    return str(path)


def test_the_list_of_nothing_and_of_two_runs(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    empty = inbox(capsys, "list")
    assert (empty.code, empty.out) == (
        0, f"no open request; `vibeserve inbox wait` waits for one\nproject {Path.cwd()}: no run is at work\n"
    )  # fmt: skip
    assert inbox(capsys, "list", "--json").json == []
    project.ask()
    project.ask(JUDGE, run="tiny-2")
    rows = inbox(capsys, "list", "--json").json
    assert [(row["key"], row["role"], row["run"], row["tries"], row["state"]) for row in rows] == [
        (IMPLEMENTER, "implementer", "tiny-1", 1, "open"), (JUDGE, "judge", "tiny-2", 1, "open")
    ]  # fmt: skip
    assert all(row["schema_version"] == 1 and row["is_waited_for"] is False for row in rows)
    assert 5000 < rows[0]["remaining_s"] <= 5400
    lines = inbox(capsys, "list").out.splitlines()
    assert lines[0].split() == ["key", "role", "try", "run", "state", "time", "left", "waited", "for"]
    assert lines[1].split() == [IMPLEMENTER, "implementer", "1", "tiny-1", "open", "90", "min", "no"]
    assert [row["key"] for row in inbox(capsys, "list", "--json", "--role", "judge").json] == [JUDGE]
    assert [row["key"] for row in inbox(capsys, "list", "--json", "--run", "tiny-1").json] == [IMPLEMENTER]
    project.folder().withdraw("over")
    assert [row["key"] for row in inbox(capsys, "list", "--json").json] == [JUDGE]
    states = {row["key"]: row["state"] for row in inbox(capsys, "list", "--all", "--json").json}
    assert states == {IMPLEMENTER: "withdrawn", JUDGE: "open"}


def test_show_says_all_that_a_player_needs(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.ask()
    folder = project.folder()
    shown = inbox(capsys, "show", IMPLEMENTER)
    head, _, rest = shown.out.partition("\n---- prompt ")
    deadline = folder.read().deadline_at  # type: ignore[union-attr]
    assert head.splitlines() == [
        "request    r01a1-implementer, try 1, run tiny-1",
        "role       implementer",
        f"deadline   {deadline}, in 90 min (no run waits now; an answer is taken when the run is started again)",
        f"workspace  {folder.workspace}",
        "           edit its files in place: as they are when you submit, they are the answer, with the output",
        f"read only  {project.root / 'skills'}",
    ]
    # no terminal takes a quoted log for a command
    assert f"Work in {folder.workspace}.\nA log: \ufffd[2J\ufffd.\n" in rest
    output = rest.partition("\n---- output ")[2]
    assert '\n  status = one of "done", "gave_up": gave_up: it cannot be built, or your own measurement' in output
    assert "\n  summary = text, 3 to 2000 characters: what was changed, for the one who judges it\n" in output
    assert "\n  no other fields\n" in output
    assert output.endswith(
        f"\nvibeserve inbox submit r01a1-implementer --mailbox {project.mailbox()} --tries 1 --output FILE\n"
        "FILE holds the document, outside of the workspace; `-` reads it from standard input; `--by NAME` says who you "
        "are\n"
    )


def test_show_of_a_judge_of_a_repetition_and_of_what_is_closed(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    project.ask(JUDGE, feedback="summary: say more\nreasons: name the file")
    folder = project.folder(JUDGE)
    request = json.loads((folder.path / "request.json").read_text())
    (folder.path / "request.json").write_text(json.dumps({**request, "refused": "it is not JSON"}))
    text = inbox(capsys, "show", JUDGE).out
    assert "\n           a copy to read; nothing that you change there counts\n" in text
    assert (
        "\nthe output of the try before was refused:\n  | summary: say more\n  | reasons: name the file\n"
        "a result.json was set aside:\n  | it is not JSON\n"
    ) in text
    folder.withdraw("the run was stopped")
    text = inbox(capsys, "show", JUDGE).out
    assert "\nstate      withdrawn: the run was stopped; no answer is taken now\n" in text


def test_show_as_a_document_is_all_that_a_program_needs(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.ask(JUDGE)
    document = inbox(capsys, "show", JUDGE, "--json").json
    assert document["output_schema"] == SCHEMAS["judge"]
    assert document["prompt"].startswith(f"Work in {document['workspace']}.")
    assert (document["is_writable"], document["read_only"]) == (False, [str(project.root / "skills")])
    assert Path(document["prompt_file"]).read_text() == document["prompt"]
    Draft202012Validator(document["output_schema"]).validate(PASSED)
    words = shlex.split(document["submit"])
    words[words.index("FILE")] = answer(project.root, PASSED)
    assert inbox(capsys, *words[2:]).code == 0
    assert json.loads((project.folder(JUDGE).path / "result.json").read_text())["output"] == PASSED


def test_submit_says_what_was_taken(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.ask()
    workspace = project.folder().workspace
    (workspace / "service.yaml").write_text("argv: [x]\n")
    (workspace / "new.py").write_text("")
    (workspace / ".claude").mkdir()
    done = inbox(capsys, "submit", IMPLEMENTER, "--output", answer(project.root), "--by", "Ada", "--note", "hm")
    assert (done.code, done.out) == (
        0,
        "submitted r01a1-implementer, try 1\n  added    new.py\n  changed  service.yaml\n"
        "left out, being no part of a runtime: .claude\n"
        "no run waits for it now; an answer is taken when the run is started again\n",
    )
    result = json.loads((project.folder().path / "result.json").read_text())
    assert (result["by"], result["note"], result["output"]) == ("Ada", "hm", DONE)
    again = inbox(capsys, "submit", IMPLEMENTER, "--output", answer(project.root))
    assert (again.code, again.out) == (3, "")
    assert again.err == "vibeserve: request 'r01a1-implementer' is answered already by Ada; no second answer is taken\n"


def test_submit_from_standard_input_and_as_a_document(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project.ask(run="tiny-1")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(DONE).encode())))
    done = inbox(capsys, "submit", IMPLEMENTER, "--output", "-", "--json").json
    assert done == {
        "schema_version": 1, "key": IMPLEMENTER, "tries": 1, "added": [], "changed": [], "deleted": [], "left_out": [],
        "is_waited_for": False,
    }  # fmt: skip


def test_an_unchanged_workspace_is_said(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.ask()
    done = inbox(capsys, "submit", IMPLEMENTER, "--output", answer(project.root))
    assert "\n  the workspace is as it was\n" in done.out


def test_an_output_that_does_not_fit_is_refused(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.ask(JUDGE)
    done = inbox(capsys, "submit", JUDGE, "--output", answer(project.root, {**PASSED, "verdict": "ok"}))
    assert (done.code, done.err) == (
        3,
        "vibeserve: the output does not fit request 'r01a1-judge'\n"
        '  verdict: "ok" is not valid; valid: pass, refuse\n',
    )
    assert not project.folder(JUDGE).has_result


def refusals(project: Project) -> dict[str, tuple[tuple[str, ...], str]]:
    """argv -> the whole message."""
    mailbox, workspace = project.mailbox(), project.folder().workspace
    (workspace / "answer.json").write_text("{}")
    (project.root / "large.json").write_text(" " * (1024 * 1024 + 1))
    broken = answer(project.root, '{"status": done}')
    submit = ("submit", IMPLEMENTER, "--run", "tiny-1", "--output")
    return {
        "unknown key": (
            ("show", "r01a1-implementr", "--run", "tiny-1"),
            "inbox: no request 'r01a1-implementr'\n  open: r01a1-implementer\nnext: vibeserve inbox list --all",
        ),
        "nothing open": (
            ("show", "x", "--run", "tiny-3"),
            "inbox: no run 'tiny-3' has a mailbox here\n  runs: tiny-1, tiny-2",
        ),
        "no mailbox": (
            ("list", "--mailbox", "absent"), "inbox: --mailbox absent: no such folder\nnext: vibeserve inbox list"
        ),
        "no project": (
            ("list", "--dir", "absent"),
            "inbox: --dir absent: no such folder\nnext: name the folder that holds .vibeserve",
        ),
        "ambiguous": (
            ("show", IMPLEMENTER),
            "inbox: several runs have a request 'r01a1-implementer'\n  add --run tiny-1 or --run tiny-2",
        ),
        "absent output": ((*submit, "absent.json"), "inbox: --output absent.json: No such file or directory"),
        "output is a folder": ((*submit, "."), "inbox: --output .: Is a directory"),
        "output is no JSON": (
            (*submit, broken),
            f"inbox: --output: {broken} is not one JSON document: Expecting value: line 1 column 12 (char 11)\n"
            "next: vibeserve inbox show r01a1-implementer says what it holds",
        ),
        "output is large": (
            (*submit, "large.json"), "inbox: --output: large.json has more than 1048576 bytes"
        ),
        "output in the workspace": (
            (*submit, str(workspace / "answer.json")),
            f"inbox: --output {workspace}/answer.json: lies in the workspace, whose files are the answer\n"
            "next: move it out of the workspace, or give it to --output - on standard input",
        ),
        "no action": (
            (),
            "inbox: the following arguments are required: action\n"
            "  usage: vibeserve inbox [-h] [--json] {list,show,submit,wait}\nnext: vibeserve inbox --help",
        ),
        "unknown action": (
            ("sumbit", "x"),
            "inbox: argument action: 'sumbit' is not valid; did you mean 'submit'? valid: list, show, submit, wait\n"
            "  usage: vibeserve inbox [-h] [--json] {list,show,submit,wait}\nnext: vibeserve inbox --help",
        ),
        "no output": (
            ("submit", IMPLEMENTER, "--mailbox", str(mailbox)),
            "inbox submit: the following arguments are required: --output\n  usage: vibeserve inbox submit [-h] "
            "[--json] [--run RUN] [--mailbox DIR] [--dir DIR] --output FILE [--tries N] [--by NAME] [--note TEXT] KEY\n"
            "next: vibeserve inbox submit --help",
        ),
    }  # fmt: skip


CASES = (
    "unknown key", "nothing open", "no mailbox", "no project", "ambiguous", "absent output", "output is a folder",
    "output is no JSON", "output is large", "output in the workspace", "no action", "unknown action",
    "no output",
)  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_wrong_command_is_refused_with_this_text(
    project: Project, capsys: pytest.CaptureFixture[str], case: str
) -> None:
    project.ask(run="tiny-1")
    project.ask(run="tiny-2")
    cases = refusals(project)
    assert tuple(cases) == CASES
    argv, text = cases[case]
    told = inbox(capsys, *argv)
    assert (told.code, told.err) == (2, f"vibeserve: {text}\n")
    assert not project.folder().has_result


def test_a_key_of_two_runs_is_clear_where_one_is_open(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.ask(run="tiny-1")
    project.ask(run="tiny-2")
    project.folder(run="tiny-1").withdraw("over")
    assert inbox(capsys, "show", IMPLEMENTER, "--json").json["run"] == "tiny-2"
    project.folder(run="tiny-2").withdraw("over")
    assert inbox(capsys, "show", "x").err == (
        "vibeserve: inbox: no request 'x'\n  no request is open\nnext: vibeserve inbox list --all\n"
    )


def test_wait_prints_the_key_of_a_request_that_comes(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    opener = threading.Timer(0.2, project.ask, args=[JUDGE])
    opener.start()
    told = inbox(capsys, "wait", "--timeout-s", "60")
    opener.join()
    assert (told.code, told.out) == (0, f"{JUDGE}\n")
    assert inbox(capsys, "wait", "--role", "judge", "--json").json["key"] == JUDGE
    project.folder(JUDGE).submit(PASSED)
    over = inbox(capsys, "wait", "--role", "judge", "--timeout-s", "0.1")
    assert (over.code, over.out) == (4, "")
    assert over.err.endswith(
        "vibeserve: inbox wait: no request to the judge was open within 0.1 s; "
        f"project {Path.cwd()}: no run is at work\n"
    )
    assert over.err.startswith(f"project {Path.cwd()}: no run is at work; waiting\n")
    over = inbox(capsys, "wait", "--role", "judge,evaluator", "--timeout-s", "0")
    assert "inbox wait: no request to the judge or the evaluator was open within 0 s; project " in over.err
    wrong = inbox(capsys, "wait", "--role", "judge,jury")
    assert wrong.code == 2 and "'jury' is no role; valid: planner, implementer, judge, evaluator" in wrong.err
    over = inbox(capsys, "wait", "--mailbox", "absent", "--timeout-s", "0")
    assert over.err.endswith("vibeserve: inbox wait: no request was open within 0 s; mailbox absent\n")


def test_an_empty_mailbox_says_what_the_runs_are_doing(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    write_journal(project)
    assert inbox(capsys, "list").out.endswith("no run is at work, the last one, runs/tiny-1, is stopped\n")
    with own_run(project.mailbox("tiny-1").parent, run="tiny-1", progress=QuietProgress()):
        assert inbox(capsys, "list").out.endswith(": runs/tiny-1 is at step start\n")


def write_journal(project: Project, *rounds: Round, run: str = "tiny-1", is_packaged: bool = False) -> None:
    journal = Journal.open(project.mailbox(run).parent / "journal.jsonl")
    for record in rounds:
        journal.append("round", {"record": to_data(record)})
    if is_packaged:
        journal.append("packaged", {})
    journal.close()


def test_options_may_stand_before_the_action(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.ask(JUDGE)
    (row,) = inbox(capsys, "--json", "--run", "tiny-1", "list").json
    assert row["key"] == JUDGE


def test_wait_ends_when_the_runs_that_asked_have_left_their_artifacts(
    project: Project, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vibeserve.cli.inbox.ENDED_POLL_S", 0.05)
    project.ask(JUDGE)
    project.folder(JUDGE).submit(PASSED)
    write_journal(project, is_packaged=True)
    over = inbox(capsys, "wait", "--timeout-s", "1")
    assert over.code == 4, "it was over before: another run may come"
    project.ask(JUDGE, run="tiny-2")
    project.folder(JUDGE, run="tiny-2").submit(PASSED)
    write_journal(project, run="tiny-2")
    ender = threading.Timer(1.0, lambda: write_journal(project, run="tiny-2", is_packaged=True))
    ender.start()
    over = inbox(capsys, "wait", "--timeout-s", "60")
    ender.join()
    assert (over.code, over.out) == (3, "")
    assert over.err.splitlines()[-1] == "vibeserve: inbox wait: run tiny-2 has left its artifact and asks nothing more"


def test_show_says_what_became_of_an_answer(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.ask()
    assert "became  " not in inbox(capsys, "show", IMPLEMENTER).out
    project.folder().submit(DONE)
    told = inbox(capsys, "show", IMPLEMENTER)
    assert "became     round 1 is not decided yet\n" in told.out
    proposal = Proposal(
        proposal_id="p", title="t", hypothesis="h", mechanism="m", activation_evidence="a", falsification="f",
        forecast_ratio=2.0, components=(), parameters={},
    )  # fmt: skip
    refused = RefusedAttempt(proposal=proposal, candidate=None, outcome=Outcome.REJECTED, reason="wrong tokens")
    headline = RatioInterval(ratio=1.5, ci_low=1.2, ci_high=1.9, num_pairs=5)
    decision = Decision(accepted=True, reason="faster", headline=headline, noise_floor=0.05)
    write_journal(project, Round(
        number=1, proposal=proposal, candidate=None, outcome=Outcome.ACCEPTED, reason="faster", decision=decision,
        attempts=2, refused_attempts=(refused,),
    ))  # fmt: skip
    assert "became     round 1, attempt 1: rejected: wrong tokens\n" in inbox(capsys, "show", IMPLEMENTER).out
    project.ask("r01a2-judge")
    project.folder("r01a2-judge").submit(PASSED)
    became = inbox(capsys, "show", "r01a2-judge", "--json").json["became"]
    assert became == "round 1, attempt 2: accepted: faster; x1.500 [1.200, 1.900]"


def test_a_run_that_waits_takes_what_is_submitted(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    declared = spec.Agents(backend="external")
    backend = ExternalBackend(spec.resolve_role(declared, "judge"), declared, mailbox=project.mailbox(), poll_s=0.02)
    (project.root / "ws").mkdir()
    request = AgentRequest(
        role="judge", key=JUDGE, prompt="Judge.", workspace=project.root / "ws", is_writable=False,
        output_schema=SCHEMAS["judge"], record_dir=project.root / "calls",
        limits=CallLimits(timeout_s=1.0, max_turns=1),
    )  # fmt: skip
    results: list[Any] = []
    run = threading.Thread(target=lambda: results.append(backend.run(request)), daemon=True)
    run.start()
    assert inbox(capsys, "wait", "--timeout-s", "60").out == f"{JUDGE}\n"
    while not project.folder(JUDGE).is_waited_for:
        time.sleep(0.01)
    assert inbox(capsys, "list").out.splitlines()[1].split()[-1] == "yes"
    done = inbox(capsys, "submit", JUDGE, "--output", answer(project.root, PASSED))
    assert done.out == f"submitted {JUDGE}, try 1\na run waits for it\n"
    run.join(60)
    assert json.loads(results[0].text) == PASSED


def test_an_expired_request_is_shown_as_such(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    project.ask(JUDGE, deadline_s=0.0)
    row = inbox(capsys, "list", "--all", "--json").json[0]
    assert (row["state"], row["remaining_s"]) == ("expired", 0.0)
    done = inbox(capsys, "submit", JUDGE, "--output", answer(project.root, PASSED))
    assert done.code == 3 and "is expired: its deadline was " in done.err
    assert AgentInfraError.exit_code == 5


def test_help_answers(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["--help"], ["submit", "--help"], ["wait", "-h"]):
        with pytest.raises(SystemExit) as ended:
            main(["inbox", *words])
        assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "submit: answer a request with a JSON document" in text and "--timeout-s" in text


def test_the_commands_of_the_page_work_as_they_stand(project: Project, capsys: pytest.CaptureFixture[str]) -> None:
    page = (data_dir("targets").parent / "docs" / "agents-external.md").read_text(encoding="utf-8")
    block = page.split("```")[1]
    commands = re.findall(r"^vibeserve (inbox [^#\n]+)", block, re.MULTILINE)
    assert [command.split()[1] for command in commands] == ["wait", "show", "submit", "list"]
    project.ask()
    answer(project.root)
    for command in commands:
        assert main(shlex.split(command)) == 0
    captured = capsys.readouterr()
    assert captured.err.endswith("; waiting\n") and captured.out.startswith(f"{IMPLEMENTER}\n")
    assert json.loads((project.folder().path / "result.json").read_text())["by"] == "Ada"
    loop = page.split("```")[3]
    assert {"wait", "show", "submit"} == set(re.findall(r"vibeserve inbox (\w+)", loop))
