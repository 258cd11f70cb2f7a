"""Requests as files: numbered, whole, never lost and never taken twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vibeserve.control import Request, submit, waiting
from vibeserve.control.requests import MAX_BYTES, UNREADABLE, numbers, path_of

SUBMIT = """
import sys
from pathlib import Path
from vibeserve.control import submit
for position in range(20):
    submit(Path(sys.argv[1]), command="note", arguments={"text": f"{sys.argv[2]} {position}"}, who="person")
"""


def ask(folder: Path, **changes: object) -> Request:
    values: dict[str, object] = {"command": "pause", "arguments": {}, "who": "person", **changes}
    return submit(folder, **values)  # type: ignore[arg-type]


def test_requests_are_numbered_and_read_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "control"
    assert waiting(folder, handled=()) == []
    first, second = ask(folder), ask(folder, command="resume")
    assert [request.number for request in (first, second)] == [1, 2]
    assert waiting(folder, handled=()) == [(first, ""), (second, "")]
    assert waiting(folder, handled={1}) == [(second, "")]
    assert json.loads(path_of(folder, 1).read_text())["schema_version"] == 1


def test_a_number_that_the_journal_knows_is_not_given_again(tmp_path: Path) -> None:
    assert ask(tmp_path, taken={1, 7}).number == 8, "though the files are gone"


def test_many_at_once_get_a_number_each(tmp_path: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", SUBMIT, str(tmp_path), name]) for name in ("ada", "bob", "cy")]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    found = waiting(tmp_path, handled=())
    assert [request.number for request, _ in found] == list(range(1, 61))
    texts = {request.arguments["text"] for request, fault in found if not fault}
    assert texts == {f"{name} {position}" for name in ("ada", "bob", "cy") for position in range(20)}


def test_a_request_that_was_not_written_to_its_end_by_the_verb_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(OSError, match="No space left"):
        patched.setattr("vibeserve.core.documents.os.fsync", full)
        ask(tmp_path)
    (tmp_path / ".000001.json.kxz3").write_text('{"number": 1')  # as a kill leaves it
    assert numbers(tmp_path) == []
    assert ask(tmp_path).number == 1


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"number": 1, "comm', "it is no request: Unterminated string"),
        ("", "it is no request: Expecting value"),
        ("[]", "it is no request: schema_version None is not known here (known: 1)"),
        ('{"schema_version": 2}', "it is no request: schema_version 2 is not known here (known: 1)"),
        ('{"schema_version": 1, "number": 1}', "it is no request: missing value for field"),
        ("\xff\xfe", "it is no request: "),
        ("x" * (MAX_BYTES + 1), f"it is no request: more than {MAX_BYTES} bytes"),
    ],
)  # fmt: skip
def test_what_somebody_else_wrote_in_its_place_is_told_with_its_fault(tmp_path: Path, text: str, fault: str) -> None:
    path_of(tmp_path, 1).write_bytes(text.encode("latin-1"))
    ((request, found),) = waiting(tmp_path, handled=())
    assert (request.number, request.command) == (1, UNREADABLE)
    assert found.startswith(fault)


def test_a_request_in_the_place_of_another_one_is_none(tmp_path: Path) -> None:
    ask(tmp_path)
    path_of(tmp_path, 1).rename(path_of(tmp_path, 5))
    ((request, fault),) = waiting(tmp_path, handled=())
    assert (request.number, fault) == (5, "it is no request: it says that it is number 1")
