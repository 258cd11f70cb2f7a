"""The answering side: once, only what is asked, only what fits; and the words that say what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from mailbox_samples import (
    KEY,
    OUTPUT,
    Waiting,
    folder_of,
    make_backend,
    make_request,
    opened,
    put_result,
)

from vibeserve.agents.mailbox import RequestFolder, find_letters, mailboxes_in, project_mailboxes
from vibeserve.agents.mailbox.documents import MailboxRequest, MailboxResult
from vibeserve.agents.mailbox.faults import output_faults
from vibeserve.agents.mailbox.schemas import document_schema, schema_texts
from vibeserve.agents.mailbox.words import schema_in_words
from vibeserve.agents.schemas import SCHEMAS
from vibeserve.core.nouns import Refusal
from vibeserve.core.paths import data_dir
from vibeserve.errors import AgentInfraError, InfraError, RefusedError


@pytest.fixture
def folder(tmp_path: Path) -> RequestFolder:
    """An open request that nobody waits for any more."""
    waiting = Waiting(make_backend(tmp_path, poll_s=0.0), make_request(tmp_path))
    asked = opened(tmp_path)
    text = (asked.path / "request.json").read_text()
    asked.withdraw("ends the thread")
    with pytest.raises(AgentInfraError):
        waiting.result()
    (asked.path / "request.json").write_text(text)
    return asked


def test_what_is_submitted_is_a_document_of_the_schema(folder: RequestFolder) -> None:
    folder.submit(OUTPUT, by="Ada", note="hm")
    document = json.loads((folder.path / "result.json").read_text())
    Draft202012Validator(document_schema(MailboxResult)).validate(document)
    tree = document.pop("tree_digest")
    assert len(tree) == 64
    assert document == {
        "schema_version": 1, "key": KEY, "tries": 1, "output": OUTPUT, "by": "Ada", "note": "hm"
    }  # fmt: skip


def test_an_output_that_does_not_fit_is_refused_with_every_fault(folder: RequestFolder) -> None:
    with pytest.raises(RefusedError) as refused:
        folder.submit({"status": "finished", "summary": "ok", "extra": 1})
    assert str(refused.value) == (
        f"the output does not fit request '{KEY}'\n"
        "  extra: is no field here; valid: status, summary\n"
        '  status: "finished" is not valid; valid: done, gave_up\n'
        "  summary: is 2 characters long, at least 3 are needed"
    )
    reasons = [reason for reason in refused.value.reasons if isinstance(reason, Refusal)]
    assert [reason.reason_class for reason in reasons] == ["unusable_output"] * 3
    assert not folder.has_result
    folder.submit(OUTPUT)


def test_a_workspace_that_no_candidate_may_be_is_refused_while_it_can_be_mended(folder: RequestFolder) -> None:
    (folder.workspace / "weights.bin").write_bytes(b"\0")
    (folder.workspace / "link.py").symlink_to("service.yaml")
    with pytest.raises(RefusedError) as refused:
        folder.submit(OUTPUT)
    assert str(refused.value) == (
        f"the workspace {folder.workspace} cannot be taken\n"
        "  link.py: is a symbolic link to service.yaml. Valid: replace it by a copy of the file\n"
        "  weights.bin: is a binary file: it holds NUL bytes. Valid: ship the source in its place; compiled files "
        "come from the build step, weights from the model's folder"
    )
    assert not folder.has_result
    (folder.workspace / "weights.bin").unlink()
    (folder.workspace / "link.py").unlink()
    assert folder.submit(OUTPUT).added == ()


def test_a_second_answer_is_refused(folder: RequestFolder) -> None:
    folder.submit(OUTPUT, by="Ada")
    with pytest.raises(RefusedError) as refused:
        folder.submit(OUTPUT, by="Bob")
    assert str(refused.value) == f"request '{KEY}' is answered already by Ada; no second answer is taken"
    (folder.path / "result.json").rename(folder.path / "result-1.json")
    document = json.loads((folder.path / "request.json").read_text())
    (folder.path / "request.json").write_text(json.dumps({**document, "state": "done"}))
    with pytest.raises(RefusedError, match=r"^request '.*' is answered already by Ada; no second answer is taken$"):
        folder.submit(OUTPUT)
    (folder.path / "result-1.json").write_text("{")
    with pytest.raises(RefusedError, match=r"^request '.*' is answered already; no second answer is taken$"):
        folder.submit(OUTPUT)


def test_of_two_at_once_one_is_accepted_and_one_is_told(folder: RequestFolder) -> None:
    start = threading.Barrier(8)

    def submit(name: str) -> str:
        start.wait()
        try:
            folder.submit(OUTPUT, by=name)
        except RefusedError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(submit, "abcdefgh"))
    accepted = [name for name, text in zip("abcdefgh", told, strict=True) if not text]
    assert len(accepted) == 1
    expected = f"request '{KEY}' is answered already by {accepted[0]}; no second answer is taken"
    assert sorted(told) == ["", *[expected] * 7]
    assert json.loads((folder.path / "result.json").read_text())["by"] == accepted[0]


HOLDING = """
import fcntl, sys
lock = open(sys.argv[1])
fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_locked_request_is_told_of(folder: RequestFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("vibeserve.agents.mailbox.folder.LOCK_WAIT_S", 0.1)
    argv = [sys.executable, "-c", HOLDING, str(folder.path / "lock")]
    holder = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None and holder.stdout.readline() == b"held\n"
    busy = f"request '{KEY}' is being answered by another process right now\nnext: `vibeserve inbox list` shows"
    with pytest.raises(RefusedError) as refused:
        folder.submit(OUTPUT)
    assert str(refused.value).startswith(busy)
    with pytest.raises(AgentInfraError) as failed:
        make_backend(tmp_path).run(make_request(tmp_path))
    assert str(failed.value).startswith(busy) and not failed.value.is_lasting
    # a killed submitter holds nothing
    holder.kill()
    holder.communicate()
    folder.submit(OUTPUT)


def test_requests_are_found_in_a_mailbox_and_in_a_project(tmp_path: Path, folder: RequestFolder) -> None:
    # a workspace may hold what looks like a request
    (folder.workspace / "request.json").write_text("{}")
    mailbox = folder.path.parent
    (letter,) = find_letters(mailboxes_in(mailbox))
    assert (letter.request.key, letter.state, letter.mailbox.run) == (KEY, "open", "")
    shared = tmp_path / "shared"
    shared.mkdir()
    mailbox.rename(shared / "run-a")
    (letter,) = find_letters(mailboxes_in(shared))
    assert (letter.request.key, letter.mailbox.run) == (KEY, "run-a")
    assert letter.row()["submit"] == (
        f"vibeserve inbox submit {KEY} --mailbox {shared / 'run-a'} --tries 1 --output FILE"
    )
    project = tmp_path / "project"
    place = project / ".vibeserve" / "runs" / "tiny-1" / "mailbox"
    place.parent.mkdir(parents=True)
    (shared / "run-a").rename(place)
    (letter,) = find_letters(project_mailboxes(project))
    assert letter.mailbox.run == "tiny-1"
    assert project_mailboxes(tmp_path) == []
    put_result(letter.folder)
    assert [each.state for each in find_letters(project_mailboxes(project))] == ["answered"]
    (place / KEY / "request.json").write_text("{")
    with pytest.raises(InfraError, match=r"^the mailbox request .*json cannot be read: Expecting .*\nnext: remove"):
        find_letters(project_mailboxes(project))


def test_the_checked_in_schemas_are_the_generated_ones() -> None:
    docs = data_dir("targets").parent / "docs" / "schemas"
    again = "from vibeserve.agents.mailbox.schemas import write_schemas; write_schemas(Path('docs/schemas'))"
    for name, text in schema_texts().items():
        assert (docs / name).read_text() == text, f"{name} has drifted from its documents; regenerate: {again}"
    for cls in (MailboxRequest, MailboxResult):
        Draft202012Validator.check_schema(document_schema(cls))
        assert not Draft202012Validator(document_schema(cls)).is_valid({"surprise": 1})


SHAPES: dict[str, Any] = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 0, "maximum": 9, "description": "how many"},
        "share": {"type": ["number", "null"], "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        "kind": {"const": "a"},
        "names": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}, "minItems": 1, "maxItems": 2},
        "inner": {"anyOf": [{"$ref": "#/x"}, {"type": "null"}]},
        "either": {
            "oneOf": [
                {"type": "object", "properties": {"x": {"type": "boolean"}}, "required": ["x"]},
                {"type": "array", "items": {"type": "number"}},
            ]
        },
        "free": {"uniqueItems": True},
    },
    "required": ["count"],
}


def test_a_schema_in_words() -> None:
    assert schema_in_words(SHAPES) == [
        "an object",
        "  count = a whole number, 0 to 9: how many",
        "  share (may be left out) = a number or null, above 0, below 1",
        '  kind (may be left out) = one of "a"',
        "  names (may be left out) = a list, 1 to 2 items",
        "    each item = text, matching ^[a-z]+$",
        '  inner (may be left out) = anything, $ref "#/x" or null',
        "  either (may be left out) = an object or a list",
        "    where it is an object:",
        "      x = true or false",
        "    where it is a list:",
        "      each item = a number",
        "  free (may be left out) = anything, uniqueItems true",
    ]


@pytest.mark.parametrize("role", sorted(SCHEMAS))
def test_every_role_s_schema_is_covered_by_the_words(role: str) -> None:
    """What no word covers would be shown as JSON."""
    text = "\n".join(schema_in_words(SCHEMAS[role]))
    assert "anything" not in text and "{" not in text
    for name in SCHEMAS[role]["properties"]:
        assert f"\n  {name} = " in text


FAULTS: list[tuple[Any, list[str]]] = [
    ({"count": 3}, []),
    ([], ["output: expected an object, got []"]),
    ({}, ["count: is missing; needed: a whole number, 0 to 9"]),
    ({"count": -1}, ["count: -1 is below 0, the least that is valid"]),
    ({"count": 10}, ["count: 10 is above 9, the most that is valid"]),
    ({"count": True}, ["count: expected a whole number, got true"]),
    ({"count": 1, "share": 0}, ["share: 0 is not above 0"]),
    ({"count": 1, "share": 1}, ["share: 1 is not below 1"]),
    ({"count": 1, "share": "x"}, ['share: expected a number or null, got "x"']),
    ({"count": 1, "kind": 7}, ["kind: 7 is not valid; valid: a"]),
    ({"count": 1, "names": []}, ["names: holds 0 items, at least 1 are needed"]),
    ({"count": 1, "names": ["a", "b", "c"]}, ["names: holds 3 items, at most 2 are taken"]),
    ({"count": 1, "names": ["A"]}, ['names[0]: "A" does not match ^[a-z]+$']),
    ({"count": 1, "either": {"x": 1}}, ["either.x: expected true or false, got 1"]),
    ({"count": 1, "either": {}}, ["either.x: is missing; needed: true or false"]),
    ({"count": 1, "either": [1, "y"]}, ['either[1]: expected a number, got "y"']),
    ({"count": 1, "free": [1, 1]}, ["free: [1, 1] has non-unique elements"]),
    ({"count": "z" * 200}, [f'count: expected a whole number, got "{"z" * 76}...']),
]


@pytest.mark.parametrize(("output", "told"), FAULTS)
def test_faults_name_the_field_and_what_is_valid(output: Any, told: list[str]) -> None:
    schema = {**SHAPES, "properties": {name: each for name, each in SHAPES["properties"].items() if name != "inner"}}
    assert output_faults(output, schema=schema) == told


def test_many_faults_are_counted() -> None:
    schema = {"type": "array", "items": {"type": "string"}}
    told = output_faults(list(range(20)), schema=schema)
    assert len(told) == 13 and told[-1] == "and 8 more"


def test_the_fixture_is_a_request_that_nobody_waits_for(folder: RequestFolder, tmp_path: Path) -> None:
    assert not folder.is_waited_for and folder_of(tmp_path) == folder
    assert RequestFolder(tmp_path / "absent").read() is None
    assert not RequestFolder(tmp_path / "absent").is_waited_for
