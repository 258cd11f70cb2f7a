"""One call of an agent: what is asked again, what is waited for, what ends it, and what is never asked twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from scripted import Answer as Scripted
from scripted import Desk

from vibeserve.agents.caller import Answer
from vibeserve.agents.ledger import Cap
from vibeserve.agents.requests import ExitFacts
from vibeserve.agents.schemas import SCHEMAS
from vibeserve.core.nouns import Refusal
from vibeserve.errors import AgentCapError, AgentInfraError, RefusedError

PASSED = json.dumps({"verdict": "pass", "summary": "read it all", "reasons": []})


def desk_with(folder: Path, *answers: Scripted, **settings: Any) -> Desk:
    return Desk(folder, list(answers), **settings)


def ask(desk: Desk, *, key: str = "r01a1-judge", prompt: str = "Judge it.", **hooks: Any) -> Answer:
    return desk.caller.ask(
        key=key, prompt=prompt, workspace=desk.folder, is_writable=False, schema=SCHEMAS["judge"], **hooks
    )


def reason_of(error: pytest.ExceptionInfo[RefusedError]) -> Refusal:
    (reason,) = error.value.reasons
    assert isinstance(reason, Refusal) and reason.gate == "agent"
    return reason


def test_a_valid_answer_is_kept_and_never_paid_for_twice(tmp_path: Path) -> None:
    first = ask(desk_with(tmp_path, PASSED))
    assert (first.output["verdict"], first.num_tries, first.usage.tokens) == ("pass", 1, 100)
    assert first.usd == pytest.approx(1e-4)
    silent = desk_with(tmp_path)
    assert ask(silent) == first
    assert silent.backend.requests == []
    other = desk_with(tmp_path, PASSED)
    assert ask(other, prompt="Judge something else.").output == first.output
    assert len(other.backend.requests) == 1


def test_every_turn_is_kept_beside_the_answer(tmp_path: Path) -> None:
    ask(desk_with(tmp_path, "no idea", PASSED))
    folder = tmp_path / "r01a1-judge"
    turns = json.loads((folder / "transcript.json").read_text())["turns"]
    assert [turn["kind"] for turn in turns] == ["message", "note", "message"]
    assert (folder / "prompt.md").read_text() == "Judge it."


def test_who_keeps_count_is_told_every_transcript(tmp_path: Path) -> None:
    told: list[tuple[str, list[str]]] = []
    desk = desk_with(tmp_path, "no idea", "no idea")
    desk.caller.finished = lambda key, turns: told.append((key, [turn.kind for turn in turns]))
    with pytest.raises(RefusedError):
        ask(desk)
    assert told == [("r01a1-judge", ["message", "note", "message", "note"])], "a call that came to nothing as well"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the answer is empty"),
        ("   \n", "the answer is empty"),
        ("I like it.", "the answer holds no JSON document; it begins: 'I like it.'"),
        ('{"verdict": "pass"', "the answer holds no JSON document"),
        ('{"verdict": "maybe", "summary": "read it", "reasons": []}', "verdict: 'maybe' is not one of"),
        ('{"verdict": "pass", "summary": "read it"}', "document: 'reasons' is a required property"),
        ('{"verdict": "pass", "summary": "read it", "reasons": [], "tip": 1}', "document: Additional properties"),
        ('{"verdict": "refuse", "summary": "no", "reasons": [{"class": "ugly"}]}', "is not valid: "),
        ('{"verdict": "pass", "summary": NaN, "reasons": []}', "the answer holds no JSON document"),
    ],
)
def test_an_answer_that_cannot_be_used_is_asked_for_once_more_with_the_reason(
    tmp_path: Path, text: str, reason: str
) -> None:
    mended = desk_with(tmp_path / "mended", text, PASSED)
    assert ask(mended).num_tries == 2
    assert reason in mended.backend.requests[1].feedback
    lost = desk_with(tmp_path / "lost", text, text)
    with pytest.raises(RefusedError) as error:
        ask(lost)
    assert reason_of(error).reason_class == "unusable_output"
    assert reason in str(error.value)
    assert len(lost.backend.requests) == 2


@pytest.mark.parametrize(
    "text",
    [
        f"```json\n{PASSED}\n```",
        f"I have read it.\n\n{PASSED}\n",
        f"An example: {{}}.\n```\n{PASSED}\n```\nThat is all.",
    ],
)
def test_a_document_may_stand_among_words(tmp_path: Path, text: str) -> None:
    assert ask(desk_with(tmp_path, text)).num_tries == 1


def test_a_failing_api_is_waited_for_and_uses_up_no_try(tmp_path: Path) -> None:
    restarts: list[int] = []
    busy = AgentInfraError("429: slow down", retry_after_s=30.0)
    lost = AgentInfraError("no connection")
    desk = desk_with(tmp_path, busy, lost, "no idea", lost, PASSED)
    answer = ask(desk, restart=lambda: restarts.append(1))
    assert (answer.num_tries, desk.slept, len(restarts)) == (2, [30.0, 4.0, 2.0], 3)


def test_waiting_ends_with_the_searchs_time(tmp_path: Path) -> None:
    failures = [AgentInfraError(f"no connection {n}") for n in range(20)]
    desk = desk_with(tmp_path, *failures, time_s=100.0)
    with pytest.raises(AgentInfraError, match="no connection 5"):
        ask(desk)
    assert desk.slept == [2.0, 4.0, 8.0, 16.0, 32.0]


def test_what_waiting_does_not_mend_is_raised_at_once(tmp_path: Path) -> None:
    desk = desk_with(tmp_path, AgentInfraError("401: wrong key", is_lasting=True), PASSED)
    with pytest.raises(AgentInfraError, match="wrong key"):
        ask(desk)
    assert desk.slept == []


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        ("timed_out", "the judge had no answer within 60 s"),
        ("max_turns", "the judge had no answer within its turns"),
    ],
)
def test_a_call_that_was_ended_is_not_asked_again(tmp_path: Path, reason: str, text: str) -> None:
    desk = desk_with(tmp_path, ExitFacts(reason=reason), PASSED)
    with pytest.raises(RefusedError) as error:
        ask(desk)
    assert (reason_of(error).reason_class, reason_of(error).text) == (reason, text)
    assert len(desk.backend.requests) == 1


def test_an_agent_that_died_is_asked_once_more(tmp_path: Path) -> None:
    desk = desk_with(tmp_path, ExitFacts(reason="died", detail="the model refused"), PASSED)
    assert ask(desk).num_tries == 2
    assert desk.backend.requests[1].feedback == "the agent ended without an answer: the model refused"


def test_a_cap_that_is_reached_forbids_the_next_request(tmp_path: Path) -> None:
    desk = desk_with(tmp_path, PASSED, PASSED, PASSED, cap=Cap(tokens=150))
    ask(desk, key="one")
    ask(desk, key="two")
    with pytest.raises(AgentCapError, match=r"cap of 150 tokens is reached \(200\); next: raise budget\.tokens"):
        ask(desk, key="three")
    assert len(desk.backend.requests) == 2
    money = desk_with(tmp_path / "money", PASSED, cap=Cap(usd=1e-5))
    ask(money)
    with pytest.raises(AgentCapError, match=r"the run's cap of 1e-05 USD is reached \(0.0001\)"):
        ask(money, key="two")


def test_a_call_that_a_cap_ended_ends_the_search(tmp_path: Path) -> None:
    desk = desk_with(tmp_path, ExitFacts(reason="cap", detail="the run's cap"), cap=Cap(tokens=100))
    with pytest.raises(AgentCapError, match="cap of 100 tokens is reached"):
        ask(desk)


def test_a_call_has_no_more_time_than_the_search(tmp_path: Path) -> None:
    desk = desk_with(tmp_path, PASSED, time_s=7.0)
    ask(desk)
    assert desk.backend.requests[0].limits.timeout_s == 7.0


def test_what_belongs_to_an_answer_is_kept_before_the_answer(tmp_path: Path) -> None:
    def fail(output: Any) -> None:
        raise RefusedError(f"not kept: {output['verdict']}")

    desk = desk_with(tmp_path, PASSED)
    with pytest.raises(RefusedError, match="not kept: pass"):
        ask(desk, settle=fail)
    assert not (tmp_path / "r01a1-judge" / "answer.json").exists()
