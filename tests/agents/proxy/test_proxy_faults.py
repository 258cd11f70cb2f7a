"""Everything that an API may do wrong: what the client sees, and what the back end is told."""

from __future__ import annotations

import email.utils
import socket
import time
from collections.abc import Callable
from http.client import IncompleteRead
from typing import Any

import pytest
from proxy_rig import KEY, PATHS, Call, ScriptedApi, Setup, responses_events

from vibeserve.agents.proxy import upstream_of
from vibeserve.errors import AgentInfraError

Start = Callable[..., Setup]
REQUEST = {"model": "big", "input": "hello"}


def failing(status: int, error: Any, **headers: str) -> Callable[[Call], None]:
    return lambda call: call.json(error, status, **headers)


def failure_after(setup: Setup, path: str = PATHS["responses"]) -> AgentInfraError:
    setup.ask(path, REQUEST)
    assert setup.proxy.last_failure is not None
    return setup.proxy.last_failure


def test_an_error_page_with_status_200_is_a_failure_and_costs_nothing(start: Start, api: ScriptedApi) -> None:
    """What a gateway in front of an API sends while that is down."""
    page = b"<html>upstream error</html>"

    def answer(call: Call) -> None:
        call.begin(200, kind="text/html; charset=utf-8", length=len(page))
        call.handler.wfile.write(page)

    api.answers(answer)
    setup = start()
    failure = failure_after(setup)
    assert str(failure).endswith("answered 200 with text/html, which is no answer of its API")
    assert not failure.is_lasting and setup.proxy.usage.tokens == 0


@pytest.mark.parametrize(
    ("status", "error", "headers", "retry_after_s", "is_lasting"),
    [
        (429, {"message": "slow down", "code": "rate_limit_exceeded"}, {"Retry_After": "7"}, 7.0, False),
        (429, {"message": "slow down"}, {"retry_after_ms": "1500", "Retry_After": "9"}, 1.5, False),
        (429, {"message": "slow down"}, {"Retry_After": "soon"}, None, False),
        (429, {"message": "no money", "code": "insufficient_quota"}, {}, None, False),
        (402, {"message": "no money"}, {}, None, False),
        (408, {"message": "late"}, {}, None, False),
        (500, {"message": "boom"}, {}, None, False),
        (503, {"message": "boom"}, {"Retry_After": "2"}, 2.0, False),
        (529, {"message": "busy", "type": "overloaded_error"}, {}, None, False),
        (401, {"message": "bad key", "code": "invalid_api_key"}, {}, None, True),
        (403, {"message": "not yours"}, {}, None, True),
        (404, {"message": "no such model", "code": "model_not_found"}, {}, None, True),
        (400, {"message": "no such model", "code": "model_not_found"}, {}, None, True),
        (400, {"message": "bad key", "details": [{"reason": "API_KEY_INVALID"}]}, {}, None, True),
        (302, {"message": "moved"}, {"Location": "http://192.0.2.1/"}, None, True),
    ],
)  # fmt: skip
def test_a_failure_is_passed_on_and_told(
    start: Start, api: ScriptedApi, status: int, error: Any, headers: Any, retry_after_s: float | None, is_lasting: bool
) -> None:
    api.answers(failing(status, {"error": error}, **headers))
    setup = start()
    reply = setup.ask(PATHS["responses"], REQUEST)
    assert (reply.status, reply.json) == (status, {"error": error})
    assert reply.headers.get("Retry-After") == headers.get("Retry_After")
    assert "Location" not in reply.headers
    failure = setup.proxy.last_failure
    assert failure is not None
    assert str(failure).startswith(f"{api.url}/v1 answered {status}: {error['message']}")
    assert (failure.retry_after_s, failure.is_lasting) == (retry_after_s, is_lasting)
    assert setup.ledger.of() == [] and setup.proxy.stop_reason == ""


def test_a_date_to_wait_for_becomes_seconds(start: Start, api: ScriptedApi) -> None:
    when = email.utils.formatdate(time.time() + 3600, usegmt=True)
    api.answers(failing(429, {"error": "later"}, Retry_After=when))
    failure = failure_after(start())
    assert failure.retry_after_s is not None and 3000 < failure.retry_after_s <= 3600
    api.answers(failing(429, {"error": "later"}, Retry_After="Mon, 01 Jan 2001 00:00:00 GMT"))
    assert failure_after(start()).retry_after_s == 0


def test_the_next_steps_are_said(start: Start, api: ScriptedApi) -> None:
    for status, text in (
        (402, "next: top the account up"),
        (401, "next: check the key that agents.api_key_env names"),
        (404, "next: check agents.model, agents.base_url and the key that agents.api_key_env names"),
    ):
        api.answers(failing(status, {"error": {"message": "no"}}))
        assert text in str(failure_after(start()))


@pytest.mark.parametrize(
    ("dialect", "error", "text"),
    [
        ("responses", {"error": {"message": "too long", "code": "context_length_exceeded"}}, "too long"),
        ("messages", {"type": "error", "error": {"type": "invalid_request_error", "message": "odd"}}, "odd"),
        ("gemini", [{"error": {"code": 400, "message": "odd", "status": "INVALID_ARGUMENT"}}], "odd"),
        ("chat", {"detail": [{"loc": ["body"]}]}, '[{"loc": ["body"]}]'),
        ("chat", b"<html>", "answered 400"),
    ],
)
def test_a_refused_request_is_no_failure_of_the_api(
    start: Start, api: ScriptedApi, dialect: str, error: Any, text: str
) -> None:
    api.answers(failing(400, error))
    setup = start()
    assert setup.ask(PATHS[dialect], REQUEST).status == 400
    assert setup.proxy.last_failure is None
    assert text in setup.proxy.last_refusal


def test_an_answer_makes_the_failure_before_it_forgotten(start: Start, api: ScriptedApi) -> None:
    api.answers(
        failing(500, {"error": "boom"}), failing(400, {"error": "odd"}), lambda call: call.stream(responses_events())
    )
    setup = start()
    assert setup.ask(PATHS["responses"], REQUEST).status == 500
    assert setup.proxy.last_failure is not None
    assert setup.ask(PATHS["responses"], REQUEST).status == 400
    assert (setup.proxy.last_failure, setup.proxy.last_refusal) == (None, "odd")
    assert setup.ask(PATHS["responses"], REQUEST).status == 200
    assert (setup.proxy.last_failure, setup.proxy.last_refusal) == (None, "")


@pytest.mark.parametrize(
    ("dialect", "event", "is_lasting"),
    [
        ("responses", {"type": "response.failed", "response": {"error": {"code": "slow_down", "message": "x"}}}, False),
        ("responses", {"type": "error", "code": "rate_limit_exceeded", "message": "x"}, False),
        ("messages", {"type": "error", "error": {"type": "overloaded_error", "message": "x"}}, False),
        ("messages", {"type": "error", "error": {"type": "authentication_error", "message": "x"}}, True),
        ("chat", {"error": {"code": 502, "message": "x"}}, False),
        ("chat", {"error": {"code": "insufficient_quota", "message": "x"}}, False),
        ("gemini", {"error": {"code": 503, "message": "x", "status": "UNAVAILABLE"}}, False),
    ],
)  # fmt: skip
def test_a_failure_inside_a_stream_is_told_and_costs_nothing(
    start: Start, api: ScriptedApi, dialect: str, event: Any, is_lasting: bool
) -> None:
    api.answers(lambda call: call.stream([event]))
    setup = start()
    setup.ask(PATHS[dialect], {**REQUEST, "stream": True})
    failure = setup.proxy.last_failure
    assert failure is not None and failure.is_lasting is is_lasting
    assert "broke its answer off: x" in str(failure)
    assert setup.ledger.of() == [] and setup.proxy.num_turns == 0


def test_a_failure_after_output_costs_what_came(start: Start, api: ScriptedApi) -> None:
    error = {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "x"}}}
    api.answers(lambda call: call.stream([*responses_events(text="w" * 80)[:2], error]))
    setup = start()
    assert "broke its answer off" in str(failure_after(setup))
    assert [spend.usage.output_tokens for spend in setup.ledger.of()] == [20]


def test_an_incomplete_answer_is_an_answer(start: Start, api: ScriptedApi) -> None:
    usage = {"input_tokens": 5, "output_tokens": 6}
    event = {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "x"}, "usage": usage}}
    api.answers(lambda call: call.stream([event]))
    setup = start()
    setup.ask(PATHS["responses"], REQUEST)
    assert setup.proxy.last_failure is None and setup.ledger.usage().tokens == 11


def test_a_cut_stream_reaches_the_client_as_one(start: Start, api: ScriptedApi) -> None:
    def cut(call: Call) -> None:
        call.begin(200, kind="text/event-stream")
        call.send(b'data: {"type":"response.output_text.delta","delta":"' + b"z" * 40 + b'"}\n\n')
        call.hang_up()

    api.answers(cut)
    setup = start()
    with pytest.raises(IncompleteRead) as caught:
        setup.ask(PATHS["responses"], {**REQUEST, "stream": True})
    assert b"zzzz" in caught.value.partial
    failure = setup.proxy.last_failure
    assert failure is not None and not failure.is_lasting
    assert f"{api.url}/v1 cannot be reached, or broke off" in str(failure)
    assert [spend.usage.output_tokens for spend in setup.ledger.of()] == [10]
    assert not setup.traffic[0]["is_whole"]


def test_an_api_that_hangs_up_before_it_answers_costs_nothing(start: Start, api: ScriptedApi) -> None:
    api.answers(lambda call: call.hang_up())
    setup = start()
    reply = setup.ask(PATHS["messages"], REQUEST)
    assert reply.status == 502 and reply.json["error"]["type"] == "api_error"
    assert setup.proxy.last_failure is not None and setup.ledger.of() == []


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_hung_api_is_given_up(start: Start, api: ScriptedApi, gate, has_begun: bool) -> None:
    over = gate()

    def hang(call: Call) -> None:
        if has_begun:
            call.begin(200, kind="text/event-stream")
            call.send(b"data: {}\n\n")
        over.wait(60)

    api.answers(hang)
    setup = start(read_timeout_s=0.2)
    if has_begun:
        with pytest.raises(IncompleteRead):
            setup.ask(PATHS["chat"], REQUEST)
    else:
        reply = setup.ask(PATHS["chat"], REQUEST)
        assert reply.status == 504
        assert reply.json["error"]["message"] == f"{api.url}/v1 was silent for 0.2 s"
    over.set()
    assert str(setup.proxy.last_failure) == f"{api.url}/v1 was silent for 0.2 s"


def test_an_unreachable_api_is_told(start: Start) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        setup = start(url=url)
        reply = setup.ask(PATHS["responses"], REQUEST)
    assert reply.status == 502
    assert reply.json["error"]["code"] == "upstream_failed"
    assert reply.json["error"]["message"].startswith(f"{url}/v1 cannot be reached, or broke off: ")
    failure = setup.proxy.last_failure
    assert failure is not None and not failure.is_lasting
    assert setup.ledger.of() == []
    assert (setup.traffic[0]["status"], setup.traffic[0]["answered_by"]) == (502, "proxy")


def test_a_huge_answer_passes_whole_and_is_recorded_cut(start: Start, api: ScriptedApi) -> None:
    text = "h" * 9_000_000
    events = responses_events(text=text)
    api.answers(lambda call: call.stream(events))
    setup = start()
    reply = setup.ask(PATHS["responses"], {**REQUEST, "stream": True})
    assert len(reply.text) > 3 * len(text)
    assert setup.ledger.of()[0].usage.tokens == 1050 and not setup.ledger.of()[0].is_estimate
    (line,) = setup.traffic
    assert len(line["response"]) == 2_000_000 and not line["is_whole"]
    assert line["note"] == f"answer of {len(reply.text)} bytes cut to 2000000"


def test_a_huge_request_passes_and_a_larger_one_is_refused(start: Start, api: ScriptedApi) -> None:
    api.answers(lambda call: call.json(responses_events()[-1]["response"]))
    setup = start()
    body = {"model": "big", "input": "q" * 5_000_000}
    assert setup.ask(PATHS["responses"], body).status == 200
    assert api.calls[0].body == body
    assert setup.traffic[0]["note"] == f"request of {len(api.calls[0].raw)} bytes cut to 2000000"
    reply = setup.ask(PATHS["messages"], b"x" * (64 * 2**20 + 1))
    assert reply.status == 413
    error = {"type": "request_too_large", "message": "the request is longer than 64 MiB"}
    assert reply.json == {"type": "error", "error": error}
    assert len(api.calls) == 1


@pytest.mark.parametrize("body", [b"{broken", b"", b"[[[[", b'"text"', b"\xff\xfe\x00", b"[" * 100_000])
def test_malformed_answers_pass_and_are_estimated(start: Start, api: ScriptedApi, body: bytes) -> None:
    api.answers(lambda call: call.json(body))
    setup = start()
    response = setup.client.open(PATHS["responses"], REQUEST)
    assert (response.status, response.read()) == (200, body)
    (spend,) = setup.ledger.of()
    assert spend.is_estimate
    assert setup.proxy.last_failure is None


@pytest.mark.parametrize(
    "junk", [b"data: {broken\n\n", b"data\n\n\n\n:x\n", b"\r\n\r\ndata: 5\r\n\r\n", b"data: []\n\n"]
)
def test_malformed_events_are_passed_over(start: Start, api: ScriptedApi, junk: bytes) -> None:
    """What follows them is read all the same, wherever the pieces of the stream end."""
    stream = junk + b"".join(b"event: x\r\ndata: " + part + b"\r\n\r\n" for part in _encoded(responses_events()))

    def script(call: Call) -> None:
        call.begin(200, kind="text/event-stream; charset=utf-8")
        for start_at in range(0, len(stream), 7):
            call.send(stream[start_at : start_at + 7])
        call.end()

    api.answers(script)
    setup = start()
    assert setup.ask(PATHS["responses"], {**REQUEST, "stream": True}).text.encode() == stream
    assert setup.ledger.usage().tokens == 1050


def _encoded(events: list[Any]) -> list[bytes]:
    import json

    return [json.dumps(event).encode() for event in events]


def test_an_absent_key_is_named_before_anything_runs(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(AgentInfraError) as caught:
        start(upstreams=[upstream_of("messages")])
    assert caught.value.is_lasting
    assert str(caught.value) == (
        "https://api.anthropic.com needs a key, and the environment variable ANTHROPIC_API_KEY is not set\n"
        "next: export ANTHROPIC_API_KEY=..., or name another variable by agents.api_key_env"
    )


def test_a_server_on_the_loopback_needs_no_key_and_is_sent_no_other_ones(
    start: Start, api: ScriptedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    api.answers(lambda call: call.json({}))
    setup = start(upstreams=[upstream_of("chat", base_url=f"{api.url}/v1")])
    assert setup.ask(PATHS["chat"], REQUEST).status == 200
    assert "Authorization" not in api.calls[0].headers
    assert KEY not in str(api.calls[0].headers)
