"""Predictions over HTTP on the real model: the same tokens as without, alone and beside others, and what usage says."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from edit_scripts import any_prediction
from local_server import LocalServer
from runtime.tokenizer import Tokenizer

NUM_PROMPTS = 40
NUM_TOKENS = 48


def prompt_of(generator: random.Random, vocab_size: int) -> list[int]:
    return [generator.randrange(3, vocab_size) for _ in range(generator.randint(3, 40))]


def body(prompt: list[int], prediction: str | None = None, **fields: Any) -> dict[str, Any]:
    made = {"prompt": prompt, "max_tokens": NUM_TOKENS, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    if prediction is not None:
        made["prediction"] = {"type": "content", "content": prediction}
    return {**made, **fields}


def test_no_prediction_changes_a_token(server: LocalServer, tokenizer: Tokenizer) -> None:
    """400 predictions, ten per prompt, all ten in flight at once."""
    generator = random.Random(21)
    vocab_size = server.service.config.vocab_size
    num_accepted = 0
    for _ in range(NUM_PROMPTS):
        prompt = prompt_of(generator, vocab_size)
        plain = server.post("/v1/completions", body(prompt)).data["choices"][0]
        ids = plain["token_ids"]
        texts = [
            tokenizer.decode(any_prediction(ids, generator=generator, vocab_size=vocab_size)) for _ in range(9)
        ]
        bodies = [body(prompt, text, max_tokens=generator.randint(1, NUM_TOKENS)) for text in (plain["text"], *texts)]
        pending = [server.start("POST", "/v1/completions", body=asked) for asked in bodies]
        for text, request in zip((plain["text"], *texts), pending, strict=True):
            reply = request.result(timeout=120).data
            (choice,), details = reply["choices"], reply["usage"]["completion_tokens_details"]
            assert choice["token_ids"] == ids[: reply["usage"]["completion_tokens"]]
            predicted = tokenizer.encode_continuation(text)
            common = sum((Counter(predicted) & Counter(choice["token_ids"])).values())
            assert 0 <= details["accepted_prediction_tokens"] <= common
            assert sum(details.values()) == len(predicted)
            num_accepted += details["accepted_prediction_tokens"]
    assert num_accepted > NUM_PROMPTS * NUM_TOKENS


def test_log_probabilities_are_those_of_one_row_at_a_time(server: LocalServer) -> None:
    prompt = prompt_of(random.Random(4), server.service.config.vocab_size)
    plain = server.post("/v1/completions", body(prompt, logprobs=2)).data["choices"][0]
    predicted = server.post("/v1/completions", body(prompt, plain["text"], logprobs=2)).data
    assert predicted["choices"][0] == plain


def test_a_streamed_answer_says_the_same(server: LocalServer) -> None:
    prompt = prompt_of(random.Random(6), server.service.config.vocab_size)
    plain = server.post("/v1/completions", body(prompt)).data["choices"][0]
    asked = body(prompt, plain["text"], stream=True, stream_options={"include_usage": True})
    streamed = server.post("/v1/completions", asked)
    assert "".join(choice["text"] for choice in streamed.choice_events) == plain["text"]
    assert [token for choice in streamed.choice_events for token in choice["token_ids"]] == plain["token_ids"]
    # several tokens in one event: the steps were fewer than the tokens
    assert len(streamed.choice_events) < NUM_TOKENS


def test_a_stop_string_inside_accepted_guesses_ends_the_answer(server: LocalServer) -> None:
    prompt = prompt_of(random.Random(7), server.service.config.vocab_size)
    text = server.post("/v1/completions", body(prompt)).data["choices"][0]["text"]
    stop = text[len(text) // 2 : len(text) // 2 + 3]
    plain = server.post("/v1/completions", body(prompt, stop=[stop])).data
    predicted = server.post("/v1/completions", body(prompt, text, stop=[stop])).data
    assert predicted["choices"] == plain["choices"]
    assert plain["choices"][0]["finish_reason"] == "stop"


def test_a_seeded_sample_is_not_moved_by_a_prediction(server: LocalServer) -> None:
    prompt = prompt_of(random.Random(8), server.service.config.vocab_size)
    plain = server.post("/v1/completions", body(prompt, temperature=0.8, seed=3)).data["choices"]
    predicted = server.post("/v1/completions", body(prompt, plain[0]["text"], temperature=0.8, seed=3)).data
    assert predicted["choices"] == plain
    assert predicted["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] == 0
