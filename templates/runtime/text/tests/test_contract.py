"""What a client may rely on, whatever the assembly: choices, stop strings, characters, seeds, limits, leaving, load."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from local_server import LocalServer, Response
from runtime.__main__ import build_service
from runtime.interfaces import Sequence
from runtime.parameters import Parameters
from runtime.tokenizer import REPLACEMENT, Tokenizer

PROMPT = "Once upon a time"
MANY_BYTES = "na\u00efve \u2013 \u6771\u4eac \U0001f642\U0001f468\u200d\U0001f467 end"
MAX_WAITING = 6
NUM_CROWD = 40
NUM_SOAK = 120


@pytest.fixture(scope="module")
def crowded(model_dir: Path) -> Iterator[LocalServer]:
    """Few may wait, so that a crowd is more than it takes."""
    with LocalServer(build_service(model_dir, parameters=replace(Parameters(), max_waiting=MAX_WAITING))) as running:
        yield running


def pieces_of(response: Response, *, index: int = 0) -> list[str]:
    return [choice["text"] for choice in response.choice_events if choice["index"] == index]


def wait_idle(server: LocalServer) -> None:
    metrics, deadline = server.service.metrics, time.monotonic() + 60
    while server.service.engine.num_unfinished or metrics.num_running or metrics.num_waiting:
        assert time.monotonic() < deadline, "the engine did not become idle"
        time.sleep(0.01)


def num_sequences() -> int:
    """That are alive in this process, whoever holds them."""
    gc.collect()
    return sum(type(each) is Sequence for each in gc.get_objects())


@contextmanager
def ended_by(server: LocalServer, token_id: int) -> Iterator[None]:
    """`token_id` is an end token, so that a model of random weights meets one."""
    engine = server.service.engine
    before = engine.parts
    engine.parts = replace(before, config=replace(before.config, eos_token_ids=(token_id,)))
    try:
        yield
    finally:
        engine.parts = before


def test_n_makes_so_many_choices_of_every_prompt(server: LocalServer) -> None:
    sampled = {"temperature": 1.0, "seed": 5}
    reply = server.complete(PROMPT, n=3, **sampled).data
    texts = [choice["text"] for choice in reply["choices"]]
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert len(set(texts)) == 3
    assert texts[0] == server.complete(PROMPT, **sampled).data["choices"][0]["text"]
    prompt_tokens = server.complete(PROMPT).data["usage"]["prompt_tokens"]
    # a prompt is counted once, every choice's tokens are counted
    assert (reply["usage"]["prompt_tokens"], reply["usage"]["completion_tokens"]) == (prompt_tokens, 36)
    single = [server.complete(prompt).data["choices"][0]["text"] for prompt in (PROMPT, "In the end")]
    greedy = server.complete([PROMPT, "In the end"], n=2).data["choices"]
    assert [choice["text"] for choice in greedy] == [single[0], single[0], single[1], single[1]]


def test_n_in_a_stream_and_in_a_chat(server: LocalServer) -> None:
    sampled = {"temperature": 1.0, "seed": 5}
    whole = server.complete(PROMPT, n=3, **sampled).data["choices"]
    stream = server.complete(PROMPT, n=3, stream=True, **sampled)
    assert ["".join(pieces_of(stream, index=index)) for index in range(3)] == [choice["text"] for choice in whole]
    chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4, "n": 2, "stream": True, **sampled}
    events = server.post("/v1/chat/completions", chat).choice_events
    assert [event["index"] for event in events if event["delta"].get("role") == "assistant"] == [0, 1]
    assert {event["index"] for event in events if event["finish_reason"]} == {0, 1}


def test_a_stop_string_over_any_border_of_chunks_is_met_and_never_shown(server: LocalServer) -> None:
    fields: dict[str, Any] = {"max_tokens": 24, "stream": True}
    pieces = [piece for piece in pieces_of(server.complete(PROMPT, **fields)) if piece]
    whole = "".join(pieces)
    borders = [len("".join(pieces[:number])) for number in range(1, len(pieces))]
    assert len(borders) > 4, "the reply came in one piece"
    for border in borders[:: max(1, len(borders) // 6)]:
        stop = whole[max(0, border - 2) : border + 2]
        expected = whole[: whole.index(stop)]
        stream = server.complete(PROMPT, stop=["\x00", stop], **fields)
        assert "".join(pieces_of(stream)) == expected
        assert stream.choice_events[-1]["finish_reason"] == "stop"
        (choice,) = server.complete(PROMPT, stop=stop, max_tokens=24).data["choices"]
        assert (choice["text"], choice["finish_reason"]) == (expected, "stop")


def test_characters_of_several_tokens_come_whole(server: LocalServer) -> None:
    """The model has no choice here: its tokens are bytes of this text, cut anywhere."""
    schema = {"type": "object", "properties": {"t": {"const": MANY_BYTES}}, "required": ["t"]}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {**schema, "additionalProperties": False}}}
    fields = {"max_tokens": 160, "ignore_eos": False, "response_format": form}
    stream = server.complete(PROMPT, stream=True, return_token_ids=True, **fields)
    pieces = pieces_of(stream)
    assert json.loads("".join(pieces)) == {"t": MANY_BYTES}
    assert not any(REPLACEMENT in piece for piece in pieces)
    num_tokens = sum(len(choice["token_ids"]) for choice in stream.choice_events)
    assert num_tokens > len([piece for piece in pieces if piece])
    assert server.complete(PROMPT, **fields).data["choices"][0]["text"] == "".join(pieces)


def test_logprobs_are_the_same_streamed_and_whole(server: LocalServer, tokenizer: Tokenizer) -> None:
    whole = server.complete(PROMPT, logprobs=2, return_token_ids=True).data["choices"][0]
    stream = server.complete(PROMPT, logprobs=2, stream=True)
    streamed = {
        name: [value for choice in stream.choice_events for value in choice["logprobs"][name]]
        for name in ("tokens", "token_logprobs", "text_offset")
    }
    for name in ("tokens", "text_offset"):
        assert streamed[name] == whole["logprobs"][name]
    assert streamed["token_logprobs"] == pytest.approx(whole["logprobs"]["token_logprobs"])
    assert whole["logprobs"]["tokens"] == [tokenizer.token_text(token_id) for token_id in whole["token_ids"]]


def test_a_seeded_reply_is_the_same_alone_and_in_a_crowd(server: LocalServer) -> None:
    body = {"prompt": PROMPT, "max_tokens": 12, "temperature": 1.0, "ignore_eos": True}
    alone = [server.complete(PROMPT, temperature=1.0, seed=seed).data["choices"][0]["text"] for seed in range(6)]
    pending = [server.start("POST", "/v1/completions", body={**body, "seed": seed}) for seed in range(6)]
    assert [request.result(timeout=120).data["choices"][0]["text"] for request in pending] == alone
    assert len(set(alone)) > 1


def test_an_end_token_ends_a_reply_unless_it_is_ignored(server: LocalServer) -> None:
    ids = server.complete(PROMPT, return_token_ids=True).data["choices"][0]["token_ids"]
    with ended_by(server, ids[3]):
        (ended,) = server.complete(PROMPT, ignore_eos=False, return_token_ids=True).data["choices"]
        (ignored,) = server.complete(PROMPT, return_token_ids=True).data["choices"]
    assert (ended["finish_reason"], ended["token_ids"]) == ("stop", ids[: ids.index(ids[3]) + 1])
    assert (ignored["finish_reason"], ignored["token_ids"]) == ("length", ids)


def test_what_does_not_fit_the_context_is_refused_with_its_numbers(server: LocalServer, tokenizer: Tokenizer) -> None:
    limit = server.service.limits.max_context_tokens
    error = server.complete([5] * (limit - 3), max_tokens=4).data["error"]
    assert error["code"] == "context_length_exceeded"
    for number in (limit, limit + 1, limit - 3, 4):
        assert f"{number}" in error["message"]
    messages = [{"role": "user", "content": "word " * limit}]
    for fields in ({}, {"max_tokens": 4}):
        refused = server.post("/v1/chat/completions", {"messages": messages, **fields})
        num_prompt = len(tokenizer.render_chat(messages))
        assert (refused.status, refused.data["error"]["code"]) == (400, "context_length_exceeded")
        assert f"{limit} tokens" in refused.data["error"]["message"]
        assert f"{num_prompt} in the prompt" in refused.data["error"]["message"]


def test_a_client_that_leaves_takes_all_its_choices_with_it(server: LocalServer) -> None:
    aborted = server.service.metrics.finished.get("abort", 0)
    limit = server.service.limits.max_context_tokens
    body = {"prompt": [5], "n": 3, "max_tokens": limit - 2, "stream": True, "ignore_eos": True, "temperature": 0}
    model = server.service.engine.parts.model
    forward = model.forward

    def slow(*arguments: Any) -> Any:
        time.sleep(0.005)
        return forward(*arguments)

    model.forward = slow  # type: ignore[method-assign]
    try:
        server.start("POST", "/v1/completions", body=body, leave_after_chunks=1).result(timeout=60)
        wait_idle(server)
    finally:
        model.forward = forward  # type: ignore[method-assign]
    assert server.service.metrics.finished["abort"] == aborted + 3
    assert server.service.metrics.kv_cache_usage == 0


def test_a_crowd_is_answered_or_told_to_come_back(crowded: LocalServer) -> None:
    expected = crowded.complete(PROMPT).data["choices"][0]["text"]
    body = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "ignore_eos": True}
    pending = [crowded.start("POST", "/v1/completions", body=body) for _ in range(NUM_CROWD)]
    answers = [request.result(timeout=120) for request in pending]
    served = [answer for answer in answers if answer.status == 200]
    assert {answer.data["choices"][0]["text"] for answer in served} == {expected}
    room = crowded.service.parameters.max_num_seqs + MAX_WAITING
    assert len(served) >= min(room, NUM_CROWD)
    for answer in answers:
        if answer.status != 200:
            assert (answer.status, answer.headers["retry-after"]) == (429, "1")
            assert answer.data["error"]["code"] == "overloaded"
    wait_idle(crowded)
    assert crowded.complete(PROMPT).data["choices"][0]["text"] == expected


def test_nothing_is_kept_of_requests_that_are_over(crowded: LocalServer) -> None:
    """Of every kind, also those that were left, refused or constrained: no sequence, slot or counter stays behind."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": [True, False]}}}
    kinds: list[dict[str, Any]] = [
        {},
        {"stream": True},
        {"stream": True, "leave": 1},
        {"temperature": 1.0, "n": 2},
        {"max_tokens": 0},
        {"response_format": form, "ignore_eos": False, "max_tokens": 40},
        {"prediction": {"type": "content", "content": "a time"}, "stop": "e"},
        {"prompt": [5] * 100_000},
    ]
    before = num_sequences()
    for number in range(NUM_SOAK):
        kind = dict(kinds[number % len(kinds)])
        leave = kind.pop("leave", None)
        body = {"prompt": PROMPT, "max_tokens": 8, "temperature": 0, "ignore_eos": True, **kind}
        answer = crowded.start("POST", "/v1/completions", body=body, leave_after_chunks=leave).result(timeout=60)
        assert answer.status == (400 if kind.get("max_tokens") == 0 or len(body["prompt"]) > 100 else 200)
    wait_idle(crowded)
    assert crowded.service.metrics.kv_cache_usage == 0
    # the engine's loop may hold those of its last step
    assert num_sequences() <= before + 2
