"""Bodies by server kind, and events of every shape a server may send."""

from __future__ import annotations

import json

import pytest

from vibeserve.core.nouns import PromptRequest, Usage
from vibeserve.errors import SpecError
from vibeserve.modalities.text.wire import DIALECTS, body_of, parse_event

REQUEST = PromptRequest(request_id="certification-7-1", prompt="once", num_prompt_tokens=1, max_tokens=9, logprobs=5)


def test_vllm_body_fixes_the_length_and_asks_for_ids() -> None:
    body = body_of("vllm", REQUEST, model="m")
    assert body["model"] == "m"
    assert body["max_tokens"] == 9
    assert body["ignore_eos"] is True
    assert body["return_token_ids"] is True
    assert body["logprobs"] == 5
    assert body["temperature"] == 0.0
    assert body["stream_options"] == {"include_usage": True}
    assert "stop" not in body


def test_transformers_body_has_only_fields_that_it_accepts() -> None:
    body = body_of("transformers", REQUEST, model="/models/f32")
    assert set(body) == {"model", "prompt", "stream", "max_tokens", "generation_config"}
    config = json.loads(body["generation_config"])
    assert config["min_new_tokens"] == config["max_new_tokens"] == 9
    assert config["do_sample"] is False
    assert config["eos_token_id"] == -1


def test_transformers_body_leaves_eos_alone_where_it_may_end_the_reply() -> None:
    request = PromptRequest(
        request_id="x", prompt="p", num_prompt_tokens=1, max_tokens=9, ignore_eos=False, stop=("END",)
    )
    body = body_of("transformers", request, model="m")
    assert "generation_config" not in body
    assert body["temperature"] == 0.0
    assert body["stop"] == ["END"]


def test_llama_cpp_body_forbids_prompt_reuse() -> None:
    body = body_of("llama_cpp", REQUEST, model="m")
    assert body["cache_prompt"] is False
    assert body["n_predict"] == body["max_tokens"] == 9
    assert body["ignore_eos"] is True


@pytest.mark.parametrize("name", sorted(DIALECTS))
def test_no_body_names_the_pool_or_the_seed(name: str) -> None:
    assert "certification" not in json.dumps(body_of(name, REQUEST, model="m"))


def test_an_unknown_dialect_lists_the_known_ones() -> None:
    with pytest.raises(SpecError, match=r"unknown dialect 'tgi'\n  valid: llama_cpp, transformers, vllm"):
        body_of("tgi", REQUEST, model="m")


def test_event_with_everything() -> None:
    event = parse_event(
        json.dumps(
            {
                "choices": [
                    {
                        "text": " a",
                        "token_ids": [3, 4],
                        "finish_reason": "length",
                        "logprobs": {"token_logprobs": [-0.5, -1]},
                    }
                ],
                "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
            }
        )
    )
    assert (event.text, event.token_ids, event.logprobs) == (" a", (3, 4), (-0.5, -1.0))
    assert (event.finish_reason, event.usage) == ("length", Usage(prompt_tokens=7, completion_tokens=2))


def test_usage_event_without_choices_and_llama_server_logprobs() -> None:
    usage = parse_event('{"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}}').usage
    assert usage == Usage(prompt_tokens=1, completion_tokens=2)
    event = parse_event('{"choices": [{"text": "x", "logprobs": {"content": [{"token": "x", "logprob": -2.5}]}}]}')
    assert event.logprobs == (-2.5,)


def test_error_event() -> None:
    assert parse_event('{"error": {"message": "out of slots"}}').error == "{'message': 'out of slots'}"


@pytest.mark.parametrize(
    "data",
    [
        "no json",
        "[]",
        '"text"',
        '{"choices": 5}',
        '{"choices": [{"text": 5}]}',
        '{"choices": [{"text": "\\ud800"}]}',
        '{"choices": [{"text": "a", "token_ids": ["b"]}]}',
        '{"choices": [{"text": "a", "token_ids": [true]}]}',
        '{"choices": [], "usage": {"prompt_tokens": 1}}',
        '{"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": "64"}}',
        '{"choices": [{"text": "a", "logprobs": {"token_logprobs": ["x"]}}]}',
        "[" * 100_000,
    ],
)
def test_anything_else_is_a_value_error(data: str) -> None:
    with pytest.raises(ValueError):
        parse_event(data)
