"""Caps and turns: looked at before a request is sent, exceeded by what is in flight at most."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from proxy_rig import PATHS, Call, ScriptedApi, Setup, in_threads, responses_events

from vibeserve.agents.ledger import Cap, Ledger, Spend
from vibeserve.agents.prices import PriceTable
from vibeserve.agents.requests import AgentUsage
from vibeserve.errors import AgentCapError, InfraError

Start = Callable[..., Setup]
REQUEST = {"model": "big", "input": "hello"}
ANSWER = responses_events()[-1]["response"]  # 1050 tokens
TEXT = "the run's cap of 2000 tokens is reached (2100); next: raise budget.tokens"


def test_a_cap_that_is_reached_stops_the_next_request(start: Start, api: ScriptedApi) -> None:
    api.answers(lambda call: call.json(ANSWER))
    setup = start(run_cap=Cap(tokens=2000))
    assert [setup.ask(PATHS["responses"], REQUEST).status for _ in range(2)] == [200, 200]
    assert setup.proxy.stop_reason == "" and setup.proxy.cap_error is None
    reply = setup.ask(PATHS["responses"], REQUEST)
    assert reply.status == 403 and reply.headers["x-should-retry"] == "false"
    assert reply.json["error"] == {"message": TEXT, "type": "invalid_request_error", "param": None, "code": "cap"}
    assert len(api.calls) == 2
    assert setup.proxy.stop_reason == "cap"
    assert isinstance(setup.proxy.cap_error, AgentCapError)
    assert str(setup.proxy.cap_error) == TEXT and setup.proxy.cap_error.scope == "run"
    assert setup.proxy.num_turns == 2 and setup.proxy.last_failure is None
    last = setup.traffic[-1]
    assert (last["status"], last["answered_by"], last["usage"]) == (403, "proxy", None)


@pytest.mark.parametrize("dialect", ["chat", "messages", "gemini"])
def test_a_refusal_has_the_shape_of_its_dialect(start: Start, api: ScriptedApi, dialect: str) -> None:
    setup = start(max_turns=0)
    error = setup.ask(PATHS[dialect], REQUEST)
    text = "the 0 requests of this call are used up (agents.max_turns)"
    assert error.status == 403
    assert (
        error.json
        == {
            "chat": {"error": {"message": text, "type": "invalid_request_error", "param": None, "code": "max_turns"}},
            "messages": {"type": "error", "error": {"type": "permission_error", "message": text}},
            "gemini": {"error": {"code": 403, "message": text, "status": "PERMISSION_DENIED"}},
        }[dialect]
    )
    assert api.calls == []


def test_the_role_has_a_cap_of_its_own_in_money(start: Start, api: ScriptedApi) -> None:
    api.answers(lambda call: call.json(ANSWER))
    prices = PriceTable(date="", models={})
    ledger = Ledger(run_cap=Cap(), role_caps={"implementer": Cap(usd=0.01), "judge": Cap(usd=9)}, prices=prices)
    used = AgentUsage(input_tokens=10, num_requests=1)
    ledger.restore([Spend(role="implementer", key="k", backend="codex", model="big", usage=used, usd=0.02)])
    judge, implementer = start(ledger=ledger, role="judge"), start(ledger=ledger)
    assert judge.ask(PATHS["responses"], REQUEST).status == 200
    reply = implementer.ask(PATHS["responses"], REQUEST)
    assert reply.status == 403
    expected = "agents.implementer's cap of 0.01 USD is reached (0.0200); next: raise agents.implementer.max_usd"
    assert reply.json["error"]["message"] == expected
    assert implementer.proxy.cap_error is not None and implementer.proxy.cap_error.scope == "implementer"


def test_answered_requests_are_turns_and_failed_ones_are_not(start: Start, api: ScriptedApi) -> None:
    def fails(call: Call) -> None:
        call.json({"error": {"message": "busy"}}, 503)

    def answers(call: Call) -> None:
        call.json(ANSWER)

    api.answers(fails, answers, fails, answers, answers)
    setup = start(max_turns=2)
    assert [setup.ask(PATHS["responses"], REQUEST).status for _ in range(5)] == [503, 200, 503, 200, 403]
    assert setup.proxy.stop_reason == "max_turns" and setup.proxy.cap_error is None
    assert setup.proxy.num_turns == 2 and len(api.calls) == 4


def test_a_cap_is_exceeded_by_what_is_in_flight_at_most(start: Start, api: ScriptedApi, gate) -> None:
    """Two requests of one call run at the same time; the cap is reached by the first that ends."""
    both, go = gate(), gate()

    def script(call: Call) -> None:
        if len(api.calls) == 2:
            both.set()
        assert go.wait(60)
        call.json(ANSWER)

    def release() -> None:
        assert both.wait(60)
        go.set()

    api.answers(script)
    setup = start(run_cap=Cap(tokens=1000))

    def ask() -> int:
        return setup.ask(PATHS["responses"], REQUEST).status

    assert in_threads([ask, ask, release]) == [200, 200, None]
    assert ask() == 403
    assert len(api.calls) == 2 and setup.ledger.usage().tokens == 2100


def test_requests_in_flight_are_turns_already(start: Start, api: ScriptedApi, gate) -> None:
    arrived, go = gate(), gate()

    def script(call: Call) -> None:
        arrived.set()
        assert go.wait(60)
        call.json(ANSWER)

    api.answers(script)
    setup = start(max_turns=1)

    def second() -> int:
        assert arrived.wait(60)
        status = setup.ask(PATHS["responses"], REQUEST).status
        go.set()
        return status

    assert in_threads([lambda: setup.ask(PATHS["responses"], REQUEST).status, second]) == [200, 403]


def test_a_cap_reached_in_mid_stream_lets_the_stream_end(start: Start, api: ScriptedApi, gate) -> None:
    """Another call of the same run spends the rest; what is in flight here is not cut, what follows is refused."""
    api.answers(lambda call: call.stream(responses_events()))
    setup = start(run_cap=Cap(tokens=1000))
    response = setup.client.open(PATHS["responses"], {**REQUEST, "stream": True})
    response.readline()
    setup.ledger.add(role="judge", key="other", backend="claude", model="big", usage=AgentUsage(input_tokens=5000))
    assert b"response.completed" in response.read()
    assert setup.ask(PATHS["responses"], REQUEST).status == 403


def test_a_client_that_goes_away_ends_its_request_and_pays_for_it(
    start: Start, api: ScriptedApi, gate, until: Callable[..., None]
) -> None:
    """Also while the API says nothing more."""
    gone = gate()

    def script(call: Call) -> None:
        call.begin(200, kind="text/event-stream")
        call.send(b'data: {"type":"response.output_text.delta","delta":"' + b"z" * 400 + b'"}\n\n')
        assert gone.wait(60)

    api.answers(script)
    setup = start()
    response = setup.client.open(PATHS["responses"], {**REQUEST, "stream": True})
    response.readline()
    response.close()
    until(lambda: bool(setup.ledger.of()))
    gone.set()
    (spend,) = setup.ledger.of()
    assert spend.is_estimate and spend.usage.output_tokens == 100
    setup.proxy.stop()
    assert setup.traffic[0]["note"] == "the client went away" and not setup.traffic[0]["is_whole"]


def test_a_client_that_goes_away_before_the_answer_pays_nothing(
    start: Start, api: ScriptedApi, gate, until: Callable[..., None]
) -> None:
    arrived, over = gate(), gate()

    def script(call: Call) -> None:
        arrived.set()
        assert over.wait(60)

    api.answers(script)
    setup = start(max_turns=1)
    asking = threading.Thread(target=lambda: _give_up(setup, arrived), daemon=True)
    asking.start()
    asking.join(60)
    until(lambda: (setup.record_dir / "traffic.jsonl").exists())
    over.set()
    assert setup.ledger.of() == []
    (line,) = setup.traffic
    assert (line["status"], line["note"]) == (0, "the client went away before there was an answer")
    api.answers(lambda call: call.json(ANSWER))
    assert setup.ask(PATHS["responses"], REQUEST).status == 200


def _give_up(setup: Setup, arrived: threading.Event) -> None:
    """Send a request and close the connection when the API has it."""
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(setup.proxy.socket))
        head = f"POST /v1/responses HTTP/1.1\r\nHost: x\r\nx-api-key: {setup.proxy.client_key}\r\n"
        peer.sendall(f"{head}Content-Length: 2\r\n\r\n{{}}".encode())
        assert arrived.wait(60)


def test_stopping_counts_what_is_in_flight(start: Start, api: ScriptedApi, gate) -> None:
    ended = gate()

    def script(call: Call) -> None:
        call.begin(200, kind="text/event-stream")
        call.send(b'data: {"type":"response.output_text.delta","delta":"' + b"z" * 400 + b'"}\n\n')
        ended.wait(60)

    api.answers(script)
    setup = start()
    response = setup.client.open(PATHS["responses"], {**REQUEST, "stream": True})
    response.readline()
    socket = setup.proxy.socket
    setup.proxy.stop()
    assert [spend.usage.output_tokens for spend in setup.ledger.of()] == [100]
    assert not socket.parent.exists()
    setup.proxy.stop()


def test_a_spend_that_cannot_be_recorded_lets_nothing_more_through(start: Start, api: ScriptedApi) -> None:
    def broken(_: Any) -> None:
        raise OSError("no space left on device")

    api.answers(lambda call: call.json(ANSWER))
    ledger = Ledger(run_cap=Cap(), role_caps={}, prices=PriceTable(date="", models={}), record=broken)
    setup = start(ledger=ledger)
    assert setup.ask(PATHS["responses"], REQUEST).status == 200
    reply = setup.ask(PATHS["responses"], REQUEST)
    assert reply.status == 403
    assert reply.json["error"]["message"] == "what this call spends cannot be recorded: no space left on device"
    assert len(api.calls) == 1
    with pytest.raises(InfraError, match="what r01a1-implementer spends cannot be recorded: no space left on device"):
        setup.proxy.stop()
