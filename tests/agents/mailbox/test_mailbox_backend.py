"""The waiting side of the mailbox: asked once, taken once, found again, never waiting beyond the deadline."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from mailbox_samples import (
    FILES,
    KEY,
    OUTPUT,
    SCHEMA,
    Waiting,
    folder_of,
    mailbox_of,
    make_backend,
    make_request,
    make_workspace,
    opened,
    put_result,
    put_text,
    until,
)

from vibeserve.agents.mailbox.documents import MailboxRequest
from vibeserve.agents.mailbox.schemas import document_schema
from vibeserve.core.documents import digest_tree
from vibeserve.core.signals import finishing
from vibeserve.errors import AgentInfraError, RefusedError


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_request_lies_in_the_folder_of_its_key(tmp_path: Path) -> None:
    request = make_request(tmp_path, read_only=(tmp_path / "skills",))
    waiting = Waiting(make_backend(tmp_path), request)
    folder = opened(tmp_path)
    document = json.loads((folder.path / "request.json").read_text())
    Draft202012Validator(document_schema(MailboxRequest)).validate(document)
    assert (document["schema_version"], document["key"], document["role"]) == (1, KEY, "implementer")
    assert (document["tries"], document["state"], document["is_writable"]) == (1, "open", True)
    assert document["read_only"] == [str(tmp_path / "skills")]
    assert document["output_schema"] == SCHEMA
    asked = folder.read()
    assert asked is not None and asked.made_at < asked.deadline_at
    assert digest_tree(folder.workspace) == digest_tree(request.workspace)
    # the player works in a copy, and the prompt says where
    prompt = (folder.path / "prompt.md").read_text()
    ours, theirs = folder.workspace, request.workspace
    assert prompt == f"Edit {ours}/x in {ours}. Not {theirs}b or {theirs}.base."
    folder.submit(OUTPUT)
    waiting.result()


def test_the_answer_and_the_edits_reach_the_run(tmp_path: Path) -> None:
    request = make_request(tmp_path)
    told: list[str] = []
    waiting = Waiting(make_backend(tmp_path, tell=told.append), request)
    folder = opened(tmp_path)
    (folder.workspace / "runtime" / "model.py").write_text("HIDDEN = 128\n")
    (folder.workspace / "runtime" / "new.py").write_text("NEW = 1\n")
    (folder.workspace / "runtime" / "__pycache__").mkdir()
    (folder.workspace / ".git").mkdir()
    submitted = folder.submit(OUTPUT, by="Ada", note="by hand")
    assert (submitted.added, submitted.changed, submitted.deleted) == (("runtime/new.py",), ("runtime/model.py",), ())
    assert submitted.left_out == (".git", "runtime/__pycache__")
    result = waiting.result()
    assert json.loads(result.text) == OUTPUT
    assert (result.exit.reason, result.exit.detail) == ("done", "answered by Ada")
    assert (result.usage.tokens, result.usd) == (0, None)
    assert [(turn.kind, turn.text) for turn in result.transcript] == [
        ("note", "answered by Ada"), ("note", "by hand"), ("message", result.text)
    ]  # fmt: skip
    assert (request.workspace / "runtime" / "model.py").read_text() == "HIDDEN = 128\n"
    assert set(digest_tree(request.workspace, ignore=())) == {*FILES, "runtime/new.py"}
    # what a player has for its own use stays with it
    assert (folder.workspace / ".git").is_dir()
    command = f"vibeserve inbox show {KEY} --mailbox {mailbox_of(tmp_path)}"
    asked = folder.read()
    assert asked is not None and told == [f"implementer is asked until {asked.deadline_at}: {command}"]
    assert {"result-1.json", "edits-1"} <= names(folder.path) and "result.json" not in names(folder.path)


def test_edits_of_a_player_that_only_reads_do_not_count(tmp_path: Path) -> None:
    request = make_request(tmp_path, is_writable=False)
    before = digest_tree(request.workspace)
    waiting = Waiting(make_backend(tmp_path), request)
    folder = opened(tmp_path)
    (folder.workspace / "service.yaml").write_text("argv: [evil]\n")
    os.mkfifo(folder.workspace / "pipe")
    folder.submit(OUTPUT)
    waiting.result()
    assert digest_tree(request.workspace) == before


def test_another_tool_answers_by_renaming_a_file(tmp_path: Path) -> None:
    request = make_request(tmp_path)
    waiting = Waiting(make_backend(tmp_path), request)
    folder = opened(tmp_path)
    (folder.workspace / "service.yaml").write_text("argv: [x]\n")
    put_result(folder, by="a tool")
    assert json.loads(waiting.result().text) == OUTPUT
    assert (request.workspace / "service.yaml").read_text() == "argv: [x]\n"


def link_result(folder: Any) -> None:
    (folder.path / "secret").write_text("{}")
    (folder.path / "result.json").symlink_to("secret")


def old_text(folder: Any, text: str) -> None:
    (folder.path / ".mine").write_text(text)
    os.utime(folder.path / ".mine", (1.0, 1.0))
    (folder.path / ".mine").rename(folder.path / "result.json")


def fill_workspace(folder: Any) -> None:
    (folder.workspace / "link.py").symlink_to("/etc/passwd")
    put_result(folder)


BROKEN: dict[str, tuple[Any, str]] = {
    "no JSON": (
        lambda folder: old_text(folder, '{"key": '),
        "it is not JSON: Expecting value: line 1 column 9 (char 8); write it under another name in this folder, then "
        "rename it to result.json",
    ),
    "NaN": (lambda folder: old_text(folder, '{"output": NaN}'), "it is not JSON: NaN is no JSON number; write it"),
    "nested": (lambda folder: old_text(folder, "[" * 100_000), "it is not JSON: it is nested too deeply; write it"),
    "no object": (
        lambda folder: put_text(folder, "[]"), "it does not fit docs/schemas/mailbox-result.json: "
    ),
    "no output": (
        lambda folder: put_text(folder, f'{{"key": "{KEY}", "tries": 1}}'),
        'it does not fit docs/schemas/mailbox-result.json: missing value for field "output"',
    ),
    "unknown field": (
        lambda folder: put_result(folder, outptu=1),
        'it does not fit docs/schemas/mailbox-result.json: can not match "outptu"',
    ),
    "another version": (
        lambda folder: put_result(folder, schema_version=2), "schema_version: 2 is not known; valid: 1"
    ),
    "another key": (
        lambda folder: put_result(folder, key="r02a1-judge"),
        f"key: 'r02a1-judge' is not this request's; valid: {KEY}",
    ),
    "another try": (
        lambda folder: put_result(folder, tries=2), "tries: 2 is not the try that is asked for; valid: 1"
    ),
    "unfit output": (
        lambda folder: put_result(folder, output={"status": "ok", "summary": "fine"}),
        'status: "ok" is not valid; valid: done, gave_up',
    ),
    "link": (link_result, "it cannot be read: Too many levels of symbolic links"),
    "named pipe": (lambda folder: os.mkfifo(folder.path / "result.json"), "it is no plain file"),
    "folder": (lambda folder: (folder.path / "result.json").mkdir(), "it is no plain file"),
    "too large": (
        lambda folder: put_text(folder, " " * (4 * 1024 * 1024 + 1)), "it has more than 4194304 bytes"
    ),
    "hostile workspace": (
        fill_workspace, "link.py: is a symbolic link to /etc/passwd, out of the workspace. Valid: copy what it"
    ),
    "changed after it was submitted": (
        lambda folder: put_result(folder, tree_digest="0" * 64),
        "the workspace was changed after it had been submitted; submit again",
    ),
    "no workspace": (
        lambda folder: (shutil.rmtree(folder.workspace), put_result(folder)),
        "the workspace {workspace} cannot be read: No such file or directory",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_no_valid_result_is_set_aside_with_the_reason(tmp_path: Path, case: str) -> None:
    put, why = BROKEN[case]
    request = make_request(tmp_path)
    waiting = Waiting(make_backend(tmp_path), request)
    folder = opened(tmp_path)
    put(folder)
    refused = until(lambda: folder.read().refused)  # type: ignore[union-attr]
    assert refused.startswith(why.format(workspace=folder.workspace))
    assert "refused-1.json" in names(folder.path) and "result.json" not in names(folder.path)
    assert waiting.is_waiting
    # nothing is lost: a good one is taken still
    (folder.workspace / "link.py").unlink(missing_ok=True)
    folder.workspace.mkdir(exist_ok=True)
    folder.submit(OUTPUT)
    assert json.loads(waiting.result().text) == OUTPUT
    asked = folder.read()
    assert asked is not None and (asked.state, asked.refused) == ("done", "")


def test_a_result_that_is_still_being_written_is_given_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vibeserve.agents.mailbox.asking.SETTLE_S", 3600.0)
    waiting = Waiting(make_backend(tmp_path), make_request(tmp_path))
    folder = opened(tmp_path)
    document = json.dumps({"key": KEY, "tries": 1, "output": OUTPUT})
    with (folder.path / "result.json").open("w") as stream:
        stream.write(document[:20])
        stream.flush()
        time.sleep(0.2)
        assert waiting.is_waiting and folder.has_result
        stream.write(document[20:])
    assert json.loads(waiting.result().text) == OUTPUT
    assert "refused-1.json" not in names(folder.path)


def test_the_deadline_ends_the_wait_and_the_request(tmp_path: Path) -> None:
    request = make_request(tmp_path)
    with pytest.raises(AgentInfraError) as failed:
        make_backend(tmp_path, deadline_s=0.1).run(request)
    folder = folder_of(tmp_path)
    asked = folder.read()
    assert asked is not None and asked.state == "expired"
    assert failed.value.is_lasting and failed.value.exit_code == 5
    assert str(failed.value) == (
        f"nobody answered request '{KEY}' to the implementer before its deadline {asked.deadline_at} "
        "(agents.deadline_s=0.1)\nnext: start the same command again, which asks again, then "
        f"vibeserve inbox show {KEY} --mailbox {mailbox_of(tmp_path)}; or raise agents.deadline_s"
    )
    with pytest.raises(RefusedError) as refused:
        folder.submit(OUTPUT)
    assert str(refused.value) == (
        f"request '{KEY}' is expired: its deadline was {asked.deadline_at}; the run asks again when it is started again"
    )
    # the same command again: the same try, a new deadline, and the player's edits are still there
    (folder.workspace / "runtime" / "new.py").write_text("NEW = 1\n")
    waiting = Waiting(make_backend(tmp_path), request)
    again = opened(tmp_path).read()
    assert again is not None and again.tries == 1 and again.deadline_at > asked.deadline_at
    folder.submit(OUTPUT)
    waiting.result()
    assert (request.workspace / "runtime" / "new.py").is_file()


def test_a_result_in_the_last_moment_is_taken(tmp_path: Path) -> None:
    """It lay there before the deadline, and nobody waited then."""
    make_killed_run(tmp_path, deadline_s=3600.0)
    folder = folder_of(tmp_path)
    folder.submit(OUTPUT)
    rewrite_request(tmp_path, deadline_at="2020-01-01T00:00:00.000+00:00")
    assert json.loads(make_backend(tmp_path).run(make_request(tmp_path)).text) == OUTPUT


def rewrite_request(tmp_path: Path, **other: str) -> None:
    path = folder_of(tmp_path).path / "request.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **other}))


PROGRAM = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from mailbox_samples import make_backend, make_request
backend = make_backend(Path(sys.argv[1]), deadline_s=float(sys.argv[3]), poll_s=float(sys.argv[4]))
backend.run(make_request(Path(sys.argv[1])))
"""


def start_run(tmp_path: Path, *, deadline_s: float, poll_s: float = 0.02) -> subprocess.Popen[bytes]:
    """A run of its own process that waits for the answer."""
    words = [str(tmp_path), str(Path(__file__).parent), str(deadline_s), str(poll_s)]
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, *words], stderr=subprocess.PIPE)
    opened(tmp_path)
    until(lambda: folder_of(tmp_path).is_waited_for)
    return process


def make_killed_run(tmp_path: Path, *, deadline_s: float = 3600.0) -> None:
    process = start_run(tmp_path, deadline_s=deadline_s)
    process.kill()
    process.communicate()
    # what the next start of the run begins with
    shutil.rmtree(make_request(tmp_path).workspace)


def test_a_killed_run_finds_its_request_and_what_came_meanwhile(tmp_path: Path) -> None:
    make_killed_run(tmp_path)
    folder = folder_of(tmp_path)
    before = folder.read()
    assert not folder.is_waited_for
    (folder.workspace / "runtime" / "new.py").write_text("NEW = 1\n")
    folder.submit(OUTPUT, by="Ada")
    request = make_request(tmp_path)
    result = make_backend(tmp_path).run(request)
    assert json.loads(result.text) == OUTPUT
    assert (request.workspace / "runtime" / "new.py").read_text() == "NEW = 1\n"
    after = folder.read()
    assert before is not None and after == replace(before, state="done")


def test_a_killed_run_goes_on_waiting_until_the_same_deadline(tmp_path: Path) -> None:
    make_killed_run(tmp_path)
    folder = folder_of(tmp_path)
    before = folder.read()
    (folder.workspace / "runtime" / "half.py").write_text("HALF = 1\n")
    request = make_request(tmp_path)
    waiting = Waiting(make_backend(tmp_path, deadline_s=7200.0), request)
    until(lambda: folder.is_waited_for)
    assert opened(tmp_path).read() == before
    assert (folder.workspace / "runtime" / "half.py").is_file(), "nobody's work is thrown away"
    folder.submit(OUTPUT)
    waiting.result()
    assert (request.workspace / "runtime" / "half.py").is_file()


def test_a_run_that_died_after_it_took_the_result_asks_nothing_twice(tmp_path: Path) -> None:
    request = make_request(tmp_path)
    waiting = Waiting(make_backend(tmp_path), request)
    folder = opened(tmp_path)
    (folder.workspace / "runtime" / "new.py").write_text("NEW = 1\n")
    folder.submit(OUTPUT)
    first = waiting.result()
    # what comes later changes nothing
    (folder.workspace / "runtime" / "new.py").write_text("NEW = 2\n")
    put_result(folder, output={"status": "gave_up", "summary": "second thoughts"})
    for state in ("done", "open"):
        rewrite_request(tmp_path, state=state)
        shutil.rmtree(request.workspace)
        make_workspace(request.workspace)
        again = make_backend(tmp_path).run(request)
        assert again.text == first.text
        assert (request.workspace / "runtime" / "new.py").read_text() == "NEW = 1\n"


def test_a_repetition_with_feedback_is_a_new_try_and_keeps_the_earlier_result(tmp_path: Path) -> None:
    request = make_request(tmp_path)
    waiting = Waiting(make_backend(tmp_path), request)
    folder = opened(tmp_path)
    (folder.workspace / "runtime" / "new.py").write_text("NEW = 1\n")
    folder.submit(OUTPUT)
    waiting.result()
    repeated = replace(request, feedback="summary: say more")
    waiting = Waiting(make_backend(tmp_path), repeated)
    asked = opened(tmp_path, tries=2).read()
    assert asked is not None and asked.feedback == "summary: say more"
    assert {"request-1.json", "result-1.json"} <= names(folder.path)
    # the player goes on where it was
    assert (folder.workspace / "runtime" / "new.py").read_text() == "NEW = 1\n"
    with pytest.raises(RefusedError) as refused:
        folder.submit(OUTPUT, tries=1)
    assert str(refused.value) == (
        f"request '{KEY}' is asked for the 2nd time; try 1 is over\nnext: vibeserve inbox show {KEY}"
    )
    (folder.workspace / "runtime" / "new.py").write_text("NEW = 2\n")
    folder.submit({"status": "done", "summary": "made it much faster"}, tries=2)
    second = waiting.result()
    assert json.loads(second.text)["summary"] == "made it much faster"
    assert (request.workspace / "runtime" / "new.py").read_text() == "NEW = 2\n"
    # a later process asks both once more and gets both answers without asking anybody
    shutil.rmtree(request.workspace)
    make_workspace(request.workspace)
    backend = make_backend(tmp_path)
    assert json.loads(backend.run(request).text) == OUTPUT
    assert (request.workspace / "runtime" / "new.py").read_text() == "NEW = 1\n"
    assert backend.run(repeated).text == second.text
    assert (request.workspace / "runtime" / "new.py").read_text() == "NEW = 2\n"
    assert "request-3.json" not in names(folder.path)


def test_another_question_under_the_same_key_withdraws_the_first(tmp_path: Path) -> None:
    make_killed_run(tmp_path)
    folder = folder_of(tmp_path)
    (folder.workspace / "runtime" / "half.py").write_text("HALF = 1\n")
    put_text(folder, "{}")
    request = make_request(tmp_path, prompt="Something else.")
    waiting = Waiting(make_backend(tmp_path), request)
    opened(tmp_path, tries=2)
    earlier = folder.read("request-1.json")
    assert earlier is not None
    assert (earlier.state, earlier.why) == ("withdrawn", "the run asks something else under the same key")
    assert "refused-1.json" in names(folder.path)
    # the tree is the same, so is the work in it
    assert (folder.workspace / "runtime" / "half.py").is_file()
    folder.submit(OUTPUT)
    waiting.result()
    # another tree: the work is kept aside, and the workspace begins as the run's
    (request.workspace / "service.yaml").write_text("argv: [other]\n")
    waiting = Waiting(make_backend(tmp_path), request)
    opened(tmp_path, tries=3)
    assert (folder.path / "workspace-2" / "runtime" / "half.py").is_file()
    assert digest_tree(folder.workspace) == digest_tree(request.workspace)
    folder.submit(OUTPUT)
    waiting.result()


def test_a_withdrawn_request_ends_the_wait(tmp_path: Path) -> None:
    request = make_request(tmp_path)
    waiting = Waiting(make_backend(tmp_path), request)
    folder = opened(tmp_path)
    folder.withdraw("the run was stopped")
    with pytest.raises(AgentInfraError, match=f"^request '{KEY}' was withdrawn: the run was stopped$"):
        waiting.result()
    with pytest.raises(RefusedError, match=f"^request '{KEY}' is withdrawn: the run was stopped$"):
        folder.submit(OUTPUT)
    waiting = Waiting(make_backend(tmp_path), request)
    opened(tmp_path)
    folder.submit(OUTPUT)
    assert waiting.result().exit.reason == "done"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_wait_at_once_and_leaves_the_request_open(tmp_path: Path, number: int) -> None:
    process = start_run(tmp_path, deadline_s=3600.0, poll_s=3000.0)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    if number == signal.SIGINT:
        assert b"KeyboardInterrupt" in errors
    folder = folder_of(tmp_path)
    asked = folder.read()
    assert asked is not None and asked.state == "open" and not folder.is_waited_for


def test_two_runs_do_not_wait_for_one_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = make_request(tmp_path)
    waiting = Waiting(make_backend(tmp_path), request)
    folder = opened(tmp_path)
    until(lambda: folder.is_waited_for)
    monkeypatch.setattr("vibeserve.agents.mailbox.folder.LOCK_WAIT_S", 0.0)
    with pytest.raises(AgentInfraError, match=f"^another process waits for the answer to '{KEY}' in .*mailbox\nnext: "):
        make_backend(tmp_path).run(request)
    monkeypatch.undo()
    folder.submit(OUTPUT)
    waiting.result()


@pytest.mark.parametrize("key", ["", "../x", "a/b", ".hidden", "a" * 128, "a b"])
def test_a_key_that_names_no_folder_is_a_mistake_of_the_caller(tmp_path: Path, key: str) -> None:
    with pytest.raises(ValueError, match="cannot name a folder"):
        make_backend(tmp_path).run(make_request(tmp_path, key=key))


def test_a_mailbox_that_goes_away_is_an_infrastructure_failure(tmp_path: Path) -> None:
    waiting = Waiting(make_backend(tmp_path), make_request(tmp_path))
    opened(tmp_path)
    mailbox_of(tmp_path).rename(tmp_path / "elsewhere")
    with pytest.raises(AgentInfraError, match=r"^the mailbox was changed while an answer was waited for: "):
        waiting.result()


def test_while_a_person_is_asked_the_devices_are_given_back_and_an_end_is_heeded(tmp_path: Path) -> None:
    entered: list[str] = []

    @contextmanager
    def aside() -> Iterator[None]:
        entered.append("in")
        try:
            yield
        finally:
            entered.append("out")

    with finishing():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            make_backend(tmp_path, aside=aside).run(make_request(tmp_path))
    assert entered == ["in", "out"]
    asked = folder_of(tmp_path).read()
    assert asked is not None and asked.state == "open", "it goes on waiting when started again"
