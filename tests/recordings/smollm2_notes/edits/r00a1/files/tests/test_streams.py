"""Streams: the same reply in pieces, stop strings, sampling, several requests at once."""

from __future__ import annotations

from typing import Any

import pytest
from local_server import LocalServer, Response
from runtime.tokenizer import Tokenizer


def text_of(response: Response) -> str:
    return "".join(choice["text"] for choice in response.choice_events)


@pytest.mark.parametrize("fields", [{}, {"temperature": 1.0, "seed": 7}, {"temperature": 0.7, "top_p": 0.9, "seed": 1}])
def test_a_stream_adds_up_to_the_whole_reply(
    server: LocalServer, tokenizer: Tokenizer, fields: dict[str, Any]
) -> None:
    whole = server.complete("Once upon a time", return_token_ids=True, **fields).data
    options = {"include_usage": True}
    stream = server.complete(
        "Once upon a time", stream=True, stream_options=options, return_token_ids=True, **fields
    )
    (choice,) = whole["choices"]
    ids = [token for event in stream.choice_events for token in event["token_ids"]]
    assert text_of(stream) == choice["text"] == tokenizer.decode(ids)
    assert ids == choice["token_ids"]
    assert stream.choice_events[0]["prompt_token_ids"] == choice["prompt_token_ids"]
    assert [event["finish_reason"] for event in stream.choice_events][-1] == choice["finish_reason"]
    assert stream.events[-1]["usage"] == whole["usage"]
    assert stream.events[-1]["choices"] == []


def test_no_usage_event_unless_asked(server: LocalServer) -> None:
    assert all("usage" not in event for event in server.complete("Once", stream=True).events)


def test_chat_stream(server: LocalServer) -> None:
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6, "temperature": 0, "ignore_eos": True}
    whole = server.post("/v1/chat/completions", body).data["choices"][0]["message"]["content"]
    stream = server.post("/v1/chat/completions", {**body, "stream": True})
    deltas = [choice["delta"] for choice in stream.choice_events]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta["content"] for delta in deltas) == whole
    assert stream.events[0]["object"] == "chat.completion.chunk"


def test_seeds_decide_what_is_sampled(server: LocalServer) -> None:
    def sample(seed: int) -> str:
        text: str = server.complete("Once", temperature=1.0, seed=seed, max_tokens=16).data["choices"][0]["text"]
        return text

    assert sample(3) == sample(3)
    assert len({sample(seed) for seed in range(4)}) > 1


def test_a_temperature_of_almost_nothing_is_greedy(server: LocalServer) -> None:
    greedy = server.complete("Once").data["choices"]
    assert server.complete("Once", temperature=1e-300, seed=1).data["choices"] == greedy


def test_stop_string_across_tokens(server: LocalServer) -> None:
    whole = server.complete("Once upon a time", max_tokens=24).data["choices"][0]["text"]
    stop = whole[len(whole) // 2 : len(whole) // 2 + 5]
    expected = whole[: whole.index(stop)]
    for fields in ({"stop": stop}, {"stop": ["no such text", stop]}):
        (choice,) = server.complete("Once upon a time", max_tokens=24, **fields).data["choices"]
        assert (choice["text"], choice["finish_reason"]) == (expected, "stop")
        stream = server.complete("Once upon a time", max_tokens=24, stream=True, **fields)
        assert text_of(stream) == expected


def test_a_stop_string_that_never_comes_changes_nothing(server: LocalServer) -> None:
    whole = server.complete("Once upon a time").data["choices"][0]
    almost = whole["text"][-3:] + "\x00"
    assert server.complete("Once upon a time", stop=almost).data["choices"][0] == whole


def test_streams_side_by_side_are_complete(server: LocalServer, tokenizer: Tokenizer) -> None:
    body = {"max_tokens": 16, "temperature": 0, "ignore_eos": True, "stream": True, "return_token_ids": True}
    prompts = ["Once upon a time", "In the beginning there was", "The", "A list of things to do: "]
    pending = [server.start("POST", "/v1/completions", body={**body, "prompt": prompt}) for prompt in prompts]
    for request in pending:
        response = request.result(timeout=120)
        ids = [token for event in response.choice_events for token in event["token_ids"]]
        assert len(ids) == 16
        assert tokenizer.decode(ids) == text_of(response)


def test_several_prompts_in_one_stream(server: LocalServer) -> None:
    whole = server.complete(["Once upon", "In the end"]).data["choices"]
    events = server.complete(["Once upon", "In the end"], stream=True).choice_events
    for choice in whole:
        pieces = [event["text"] for event in events if event["index"] == choice["index"]]
        assert "".join(pieces) == choice["text"]
