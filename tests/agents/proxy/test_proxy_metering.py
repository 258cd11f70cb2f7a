"""What the proxy counts, in every dialect, streamed and whole, told and estimated."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest
from proxy_rig import KEY, PATHS, Call, ScriptedApi, Setup, responses_events

from vibeserve.agents.requests import AgentUsage

Start = Callable[..., Setup]
REQUESTS: dict[str, dict[str, Any]] = {
    "responses": {"model": "big", "input": "hello"},
    "chat": {"model": "big", "messages": [{"role": "user", "content": "hello"}]},
    "messages": {"model": "big", "max_tokens": 10, "messages": [{"role": "user", "content": "hello"}]},
    "gemini": {"contents": [{"parts": [{"text": "hello"}]}]},
}
CHAT_USAGE = {
    "prompt_tokens": 1000, "prompt_tokens_details": {"cached_tokens": 400}, "completion_tokens": 50,
    "completion_tokens_details": {"reasoning_tokens": 20}, "total_tokens": 1050,
}  # fmt: skip
MESSAGES_USAGE = {"input_tokens": 500, "cache_read_input_tokens": 400, "cache_creation_input_tokens": 100}
GEMINI_USAGE = {
    "promptTokenCount": 990, "toolUsePromptTokenCount": 10, "cachedContentTokenCount": 400, "candidatesTokenCount": 30,
    "thoughtsTokenCount": 20, "totalTokenCount": 1050,
}  # fmt: skip
WHOLE: dict[str, Any] = {
    "responses": responses_events()[-1]["response"],
    "chat": {
        "model": "big", "choices": [{"message": {"content": "done"}, "finish_reason": "stop"}], "usage": CHAT_USAGE,
    },
    "messages": {
        "type": "message", "model": "big", "content": [{"type": "text", "text": "done"}],
        "usage": {**MESSAGES_USAGE, "output_tokens": 50},
    },
    "gemini": {
        "candidates": [{"content": {"parts": [{"text": "done"}]}, "finishReason": "STOP"}],
        "usageMetadata": GEMINI_USAGE,
    },
}  # fmt: skip
STREAMED: dict[str, list[Any]] = {
    "responses": responses_events(),
    "chat": [
        {"model": "big", "choices": [{"delta": {"content": "done"}, "finish_reason": None}]},
        {"model": "big", "choices": [{"delta": {}, "finish_reason": "stop"}]},
        {"model": "big", "choices": [], "usage": CHAT_USAGE},
        "[DONE]",
    ],
    "messages": [
        {"type": "message_start", "message": {"model": "big", "usage": {**MESSAGES_USAGE, "output_tokens": 1}}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "done"}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 50}},
        {"type": "message_stop"},
    ],
    "gemini": [
        {"candidates": [{"content": {"parts": [{"text": "do"}]}}], "usageMetadata": {"promptTokenCount": 990}},
        WHOLE["gemini"],
    ],
}
TOLD = AgentUsage(
    input_tokens=1000, cached_input_tokens=400, output_tokens=50, reasoning_tokens=20, num_requests=1
)  # fmt: skip
EXPECTED = {
    "responses": TOLD,
    "chat": TOLD,
    "messages": AgentUsage(input_tokens=1000, cached_input_tokens=400, output_tokens=50, num_requests=1),
    "gemini": TOLD,
}
USD = (600 * 10 + 400 * 1 + 50 * 100) / 1e6
STREAM_PATHS = {**PATHS, "gemini": "/v1beta/models/big:streamGenerateContent?alt=sse"}
WHOLE_PATHS = {**PATHS, "gemini": "/v1beta/models/big:generateContent"}


@pytest.mark.parametrize("dialect", PATHS)
def test_a_whole_answer_is_counted_by_its_usage(start: Start, api: ScriptedApi, dialect: str) -> None:
    api.answers(lambda call: call.json(WHOLE[dialect]))
    setup = start()
    reply = setup.ask(WHOLE_PATHS[dialect], REQUESTS[dialect])
    assert (reply.status, reply.json) == (200, WHOLE[dialect])
    (spend,) = setup.ledger.of()
    assert (spend.role, spend.key, spend.backend, spend.model) == ("implementer", "r01a1-implementer", "codex", "big")
    assert spend.usage == EXPECTED[dialect]
    assert spend.usd == pytest.approx(USD) and not spend.is_estimate
    assert setup.proxy.usage == EXPECTED[dialect] and setup.proxy.usd == spend.usd and setup.proxy.num_turns == 1


@pytest.mark.parametrize("dialect", PATHS)
def test_a_stream_is_counted_by_its_usage(start: Start, api: ScriptedApi, dialect: str) -> None:
    api.answers(lambda call: call.stream(STREAMED[dialect]))
    setup = start()
    reply = setup.ask(STREAM_PATHS[dialect], {**REQUESTS[dialect], "stream": True})
    assert reply.text.count("data: ") == len(STREAMED[dialect])
    (spend,) = setup.ledger.of()
    assert spend.usage == EXPECTED[dialect] and not spend.is_estimate


def test_a_json_array_of_gemini_is_counted_by_its_last_part(start: Start, api: ScriptedApi) -> None:
    api.answers(lambda call: call.json(STREAMED["gemini"]))
    setup = start()
    setup.ask("/v1beta/models/big:streamGenerateContent", REQUESTS["gemini"])
    (spend,) = setup.ledger.of()
    assert spend.usage == TOLD and not spend.is_estimate


@pytest.mark.parametrize("dialect", PATHS)
def test_without_usage_characters_are_counted_four_a_token(start: Start, api: ScriptedApi, dialect: str) -> None:
    text = "x" * 401
    events: dict[str, list[Any]] = {
        "responses": [{"type": "response.output_text.delta", "delta": text},
                      {"type": "response.completed", "response": {"id": "r", "usage": None}}],
        "chat": [{"choices": [{"delta": {"content": text}}]}, "[DONE]"],
        "messages": [{"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}}],
        "gemini": [{"candidates": [{"content": {"parts": [{"text": text}]}, "finishReason": "STOP"}]}],
    }  # fmt: skip
    api.answers(lambda call: call.stream(events[dialect]))
    setup = start()
    request = {**REQUESTS[dialect], "stream": True, "stream_options": {"include_usage": False}}
    setup.ask(STREAM_PATHS[dialect], request)
    (spend,) = setup.ledger.of()
    assert spend.is_estimate
    extra = len("text_delta") * (dialect == "messages")
    assert spend.usage.output_tokens in range(101, 102 + extra)
    assert spend.usage.input_tokens == -(-len(api.calls[0].raw) // 4)


def test_a_stream_that_breaks_off_keeps_what_it_told(start: Start, api: ScriptedApi) -> None:
    """Anthropic tells the input at the beginning: that holds, and the output is estimated."""

    def cut(call: Call) -> None:
        call.begin(200, kind="text/event-stream")
        call.send(b"".join(b"data: " + part + b"\n\n" for part in (
            b'{"type":"message_start","message":{"usage":{"input_tokens":900,"output_tokens":1}}}',
            b'{"type":"content_block_delta","delta":{"text":"' + b"y" * 400 + b'"}}',
        )))  # fmt: skip
        call.hang_up()

    api.answers(cut)
    setup = start()
    with pytest.raises(Exception, match="IncompleteRead"):
        setup.ask(PATHS["messages"], {**REQUESTS["messages"], "stream": True})
    (spend,) = setup.ledger.of()
    assert spend.is_estimate
    assert spend.usage == AgentUsage(input_tokens=900, output_tokens=100, num_requests=1)


def test_a_streamed_chat_asks_for_its_usage(start: Start, api: ScriptedApi) -> None:
    api.answers(lambda call: call.stream(STREAMED["chat"]))
    setup = start()
    for options in (None, {"other": 1}, {"include_usage": False}):
        body = {**REQUESTS["chat"], "stream": True} | ({} if options is None else {"stream_options": options})
        setup.ask(PATHS["chat"], body)
    setup.ask(PATHS["chat"], REQUESTS["chat"])
    sent = [call.body.get("stream_options") for call in api.calls]
    assert sent == [{"include_usage": True}, {"other": 1, "include_usage": True}, {"include_usage": False}, None]


def test_usage_in_every_event_counts_once_at_the_end(start: Start, api: ScriptedApi) -> None:
    """Some servers tell the usage so far in each chunk."""
    part = {"choices": [{"delta": {"content": "a"}, "finish_reason": None}]}
    chunks = [{**part, "usage": {"prompt_tokens": 7, "completion_tokens": number}} for number in (1, 2)]
    last = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}
    api.answers(lambda call: call.stream([*chunks, last, "[DONE]"]))
    setup = start()
    setup.ask(PATHS["chat"], {**REQUESTS["chat"], "stream": True})
    assert [spend.usage for spend in setup.ledger.of()] == [AgentUsage(input_tokens=7, output_tokens=3, num_requests=1)]


def test_another_model_counts_under_its_own_name_and_price(start: Start, api: ScriptedApi) -> None:
    api.answers(lambda call: call.json(WHOLE["responses"]))
    setup = start()
    for model in ("big", "small", "vendor/small-2026-01-02", "nobody-knows"):
        setup.ask(PATHS["responses"], {"model": model, "input": "hello"})
    spends = setup.ledger.of()
    assert [spend.model for spend in spends] == ["big", "small", "vendor/small-2026-01-02", "nobody-knows"]
    assert [spend.usd for spend in spends] == [pytest.approx(usd) for usd in (USD, USD / 10, USD / 10)] + [None]
    assert setup.proxy.usd is None
    assert [call.body["model"] for call in api.calls] == [spend.model for spend in spends]


def test_a_body_that_cannot_be_read_passes_unread_and_counts_by_the_answer(start: Start, api: ScriptedApi) -> None:
    packed = b"(\xb5/\xfd not really zstd"
    api.answers(lambda call: call.stream(responses_events(model="small")))
    setup = start()
    reply = setup.ask(PATHS["responses"], packed, headers={"Content-Encoding": "zstd"})
    assert reply.status == 200
    assert api.calls[0].raw == packed and api.calls[0].headers["Content-Encoding"] == "zstd"
    (spend,) = setup.ledger.of()
    assert (spend.model, spend.usage) == ("small", TOLD)


def test_a_gzipped_body_is_read_and_sent_on_plain(start: Start, api: ScriptedApi) -> None:
    api.answers(lambda call: call.json(WHOLE["chat"]))
    setup = start()
    packed = gzip.compress(b'{"model": "small", "messages": []}')
    setup.ask(PATHS["chat"], packed, headers={"Content-Encoding": "gzip"})
    assert api.calls[0].body == {"model": "small", "messages": []}
    assert "Content-Encoding" not in api.calls[0].headers
    assert setup.ledger.of()[0].model == "small"


def test_a_request_that_names_no_model_counts_as_the_declared_one(start: Start, api: ScriptedApi) -> None:
    api.answers(lambda call: call.json(b"this is no JSON"))
    setup = start(model="small")
    setup.ask(PATHS["responses"], b"[1, 2")
    (spend,) = setup.ledger.of()
    assert spend.model == "small" and spend.is_estimate
    assert spend.usage == AgentUsage(input_tokens=2, output_tokens=4, num_requests=1)


@pytest.mark.parametrize(
    ("method", "path", "sent"),
    [
        ("POST", "/v1/messages/count_tokens", "/v1/messages/count_tokens"),
        ("POST", "/v1beta/models/big:countTokens", "/v1beta/models/big:countTokens"),
        ("GET", "/v1/models", "/v1/models"),
    ],
)
def test_counting_and_listing_cost_nothing(start: Start, api: ScriptedApi, method: str, path: str, sent: str) -> None:
    api.answers(lambda call: call.json({"input_tokens": 100}))
    setup = start(max_turns=0)
    body = None if method == "GET" else {"model": "big"}
    assert setup.ask(path, body, method=method).json == {"input_tokens": 100}
    assert api.calls[0].path == sent
    assert setup.ledger.of() == [] and setup.proxy.num_turns == 0


def test_a_stream_is_passed_on_event_by_event(start: Start, api: ScriptedApi, gate) -> None:
    """The API sends its second event only after the client has read the first one."""
    read = gate()
    events = responses_events()

    def script(call: Call) -> None:
        call.begin(200, kind="text/event-stream")
        for number, item in enumerate(events):
            if number == 1:
                assert read.wait(60)
            call.send(b"data: " + json.dumps(item).encode() + b"\n\n")
        call.end()

    api.answers(script)
    setup = start()
    response = setup.client.open(PATHS["responses"], {"model": "big", "stream": True})
    first = response.readline()
    assert b"response.created" in first
    assert setup.ledger.of() == []
    read.set()
    assert response.read().count(b"data: ") == len(events) - 1
    assert setup.ledger.of()[0].usage == TOLD


def test_the_spend_is_counted_before_the_client_hears_of_the_end(start: Start, api: ScriptedApi, gate) -> None:
    """A client acts on the last event, not on the end of the body: its next request must find the spend."""
    held = gate()

    def script(call: Call) -> None:
        call.begin(200, kind="text/event-stream")
        for item in responses_events():
            call.send(b"data: " + json.dumps(item).encode() + b"\n\n")
        held.wait(60)
        call.end()

    api.answers(script)
    setup = start()
    response = setup.client.open(PATHS["responses"], {"model": "big", "stream": True})
    while b"response.completed" not in response.readline():
        pass
    assert [spend.usage for spend in setup.ledger.of()] == [TOLD]
    assert setup.proxy.num_turns == 1


def test_the_key_reaches_the_api_and_only_there(start: Start, api: ScriptedApi) -> None:
    names = {"responses": "Authorization", "chat": "Authorization", "messages": "x-api-key", "gemini": "x-goog-api-key"}
    api.answers(lambda call: call.json({}))
    setup = start()
    for dialect, name in names.items():
        setup.ask(WHOLE_PATHS[dialect], REQUESTS[dialect])
        got = {header.lower(): value for header, value in api.calls[-1].headers.items()}
        assert got[name.lower()] == (f"Bearer {KEY}" if name == "Authorization" else KEY)
        assert [value for value in got.values() if KEY in value] == [got[name.lower()]]
        assert setup.proxy.client_key not in str(got)
        assert got.get("anthropic-version") == ("2023-06-01" if dialect == "messages" else None)
