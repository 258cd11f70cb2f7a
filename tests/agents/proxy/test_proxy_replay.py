"""Recorded traffic answers in place of an API, in its order, and refuses everything else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from proxy_rig import PATHS, Call, ScriptedApi, Setup, responses_events

from vibeserve.agents.proxy import ReplayUpstream, upstream_of
from vibeserve.errors import SpecError

Start = Callable[..., Setup]
REQUEST = {"model": "big", "input": "hello"}


@pytest.fixture
def recorded(start: Start, api: ScriptedApi) -> tuple[Path, list[str]]:
    """A recording of a stream, a failure, a whole answer, a count of tokens and a refused request; its replies."""
    api.answers(
        lambda call: call.stream(responses_events(text="first")),
        lambda call: call.json({"error": {"message": "busy"}}, 429),
        lambda call: call.json({"input_tokens": 9}),
        lambda call: call.json(responses_events(text="second")[-1]["response"]),
    )
    setup = start(max_turns=2)
    paths = [
        PATHS["responses"],
        PATHS["responses"],
        "/v1/messages/count_tokens",
        PATHS["responses"],
        PATHS["responses"],
    ]
    replies = [setup.ask(path, REQUEST) for path in paths]
    assert [reply.status for reply in replies] == [200, 429, 200, 200, 403]
    setup.proxy.stop()
    return setup.record_dir / "traffic.jsonl", [reply.text for reply in replies[:4]]


def replayed(start: Start, path: Path, *, role: str = "implementer") -> tuple[Setup, ReplayUpstream]:
    transport = ReplayUpstream(path, role=role)
    # the provider's own address and no key anywhere: nothing is asked for
    upstreams = [upstream_of("responses"), upstream_of("messages")]
    return start(transport=transport, upstreams=upstreams, role=role), transport


def test_a_recording_answers_as_the_api_did(
    start: Start, api: ScriptedApi, recorded: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, texts = recorded
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "TEST_KEY"):
        monkeypatch.delenv(name, raising=False)
    num_calls = len(api.calls)
    setup, transport = replayed(start, path)
    assert transport.num_left == 3
    first, busy = (setup.ask(PATHS["responses"], REQUEST) for _ in range(2))
    assert (first.text, first.headers["Content-Type"]) == (texts[0], "text/event-stream")
    assert busy.status == 429 and setup.proxy.last_failure is not None
    count = setup.ask("/v1/messages/count_tokens", REQUEST)
    second = setup.ask(PATHS["responses"], {**REQUEST, "input": "another text"})
    assert json.loads(count.text) == json.loads(texts[2]) and json.loads(second.text) == json.loads(texts[3])
    assert transport.num_left == 0 and len(api.calls) == num_calls
    assert setup.ledger.usage().tokens == 2100 and not any(spend.is_estimate for spend in setup.ledger.of())


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"path": PATHS["messages"]}, "has dialect 'responses' for request 1, and 'messages' was asked"),
        ({"model": "small"}, "has model 'big' for request 1, and 'small' was asked"),
        ({"role": "judge"}, "has role 'implementer' for request 1, and 'judge' was asked"),
    ],
)
def test_another_request_is_refused(start: Start, recorded: tuple[Path, list[str]], change: dict, text: str) -> None:
    setup, transport = replayed(start, recorded[0], role=change.get("role", "implementer"))
    reply = setup.ask(change.get("path", PATHS["responses"]), {**REQUEST, "model": change.get("model", "big")})
    assert reply.status == 502
    assert reply.json["error"]["message"] == f"the recording {recorded[0]} {text}"
    failure = setup.proxy.last_failure
    assert failure is not None and failure.is_lasting and text in str(failure)
    assert transport.num_left == 3 and setup.ledger.of() == []


def test_one_request_too_many_is_refused(start: Start, recorded: tuple[Path, list[str]]) -> None:
    setup, _ = replayed(start, recorded[0])
    replies = [setup.ask(PATHS["responses"], REQUEST) for _ in range(4)]
    assert [reply.status for reply in replies] == [200, 429, 200, 502]
    assert "ends after 3 requests, and another one came" in replies[-1].text


def test_what_was_never_counted_is_refused_where_it_is_not_there(
    start: Start, recorded: tuple[Path, list[str]]
) -> None:
    setup, _ = replayed(start, recorded[0])
    reply = setup.ask("/v1/models", method="GET")
    assert reply.status == 502 and "has no answer for /models" in reply.text
    assert setup.proxy.last_failure is None


def test_a_cut_answer_is_not_replayed(start: Start, api: ScriptedApi) -> None:
    def cut(call: Call) -> None:
        call.begin(200, kind="text/event-stream")
        call.send(b"data: {}\n\n")
        call.hang_up()

    api.answers(cut)
    setup = start()
    with pytest.raises(Exception, match="IncompleteRead"):
        setup.ask(PATHS["responses"], REQUEST)
    setup.proxy.stop()
    again, _ = replayed(start, setup.record_dir / "traffic.jsonl")
    reply = again.ask(PATHS["responses"], REQUEST)
    assert reply.status == 502 and "does not hold the whole answer to request 1" in reply.text


def test_what_is_no_recording_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="cannot read the recorded traffic"):
        ReplayUpstream(tmp_path / "traffic.jsonl", role="judge")
