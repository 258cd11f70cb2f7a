"""A process that is killed in the middle of a call: the next one asks, and pays, nothing again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from scripted_model import ScriptedModel, call, submit

from vibeserve.agents.ledger import Spend

NUM_REQUESTS = 3


@pytest.fixture(autouse=True)
def next_process(monkeypatch: pytest.MonkeyPatch):
    """Call it where another process begins."""

    def begin(name: str) -> None:
        monkeypatch.setattr("vibeserve.agents.openai_loop.exchanges.this_process", lambda: name)

    begin("first")
    return begin


class Killed(BaseException):
    """Stands for SIGKILL: nothing behind it is carried out."""


def killed_at(number: int, *, is_journalled: bool):
    """What makes spends durable, in a process that dies at the `number`-th, before or behind the append."""
    journal: list[Spend] = []

    def record(spend: Spend) -> None:
        if len(journal) + 1 == number and not is_journalled:
            raise Killed
        journal.append(spend)
        if len(journal) == number:
            raise Killed

    return journal, record


@pytest.mark.parametrize("number", range(1, NUM_REQUESTS + 1))
@pytest.mark.parametrize("is_journalled", [False, True])
def test_what_was_answered_is_not_asked_again_and_counted_once(
    make_backend, make_request, make_ledger, paths, number: int, is_journalled: bool, tmp_path: Path, next_process
) -> None:
    model = ScriptedModel(replies=[call("list_files"), call("read_file", path="README.md"), submit()], paths=paths)
    first, second = make_ledger(), make_ledger()
    journal, first.record = killed_at(number, is_journalled=is_journalled)
    with pytest.raises(Killed):
        make_backend(model, ledger=first).run(make_request())
    assert len(model.requests) == number
    second.restore(journal)
    next_process("second")
    result = make_backend(model, ledger=second).run(make_request())
    assert (result.exit.reason, len(model.requests)) == ("done", NUM_REQUESTS)
    assert [spend.usage.num_requests for spend in second.of(key="r01a1-implementer")] == [1] * NUM_REQUESTS
    assert result.usage.num_requests == NUM_REQUESTS and result.usd == second.usd()
    lines = (tmp_path / "records" / "exchanges.jsonl").read_text().splitlines()
    assert len([line for line in lines if json.loads(line)["status"] == 200]) == NUM_REQUESTS


def test_a_line_that_is_cut_short_is_cut_off(
    make_backend, make_request, make_ledger, paths, tmp_path: Path, next_process
) -> None:
    model = ScriptedModel(replies=[call("list_files"), submit()], paths=paths)
    ledger = make_ledger()
    _, ledger.record = killed_at(1, is_journalled=True)
    with pytest.raises(Killed):
        make_backend(model, ledger=ledger).run(make_request())
    path = tmp_path / "records" / "exchanges.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    next_process("second")
    model.replies.insert(0, call("list_files"))  # its answer is gone with the line: it is asked again
    result = make_backend(model).run(make_request())
    assert (result.exit.reason, len(model.requests)) == ("done", 3)
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_another_prompt_and_the_same_process_get_answers_of_their_own(
    make_backend, make_request, paths, next_process
) -> None:
    model = ScriptedModel(replies=[submit()], paths=paths)
    for number, (process, prompt) in enumerate([("first", "a"), ("first", "a"), ("second", "b"), ("third", "a")]):
        next_process(process)
        make_backend(model).run(replace(make_request(), prompt=prompt))
        assert len(model.requests) == min(number + 1, 3), "the third process has what the first was answered"


def test_a_command_that_says_another_time_is_the_same_request_and_one_that_fails_is_not(
    make_backend, make_request, make_ledger, paths, next_process, workspace: Path
) -> None:
    """The smallest input that paid turns again: the second request held how long the first command took."""
    command = "cat README.md && date +%s%N"
    for words, num_requests in (("a runtime\n", 3), ("another one\n", 4)):
        model = ScriptedModel(replies=[call("run_command", command=command), call("list_files"), submit()], paths=paths)
        ledger = make_ledger()
        _, ledger.record = killed_at(2, is_journalled=True)
        next_process(f"first {num_requests}")
        key = f"r{num_requests:02d}a1-implementer"
        request = replace(make_request(), key=key, record_dir=workspace.parent / key)
        with pytest.raises(Killed):
            make_backend(model, ledger=ledger).run(request)
        (workspace / "README.md").write_text(words)
        next_process(f"second {num_requests}")
        model.replies.insert(0, call("list_files")) if num_requests == 4 else None
        make_backend(model).run(request)
        assert len(model.requests) == num_requests
        (workspace / "README.md").write_text("a runtime\n")
