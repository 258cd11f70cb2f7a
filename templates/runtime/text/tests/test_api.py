"""Routes, shapes and refusals of the API."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from local_server import LocalServer, Response
from runtime import spans
from runtime.__main__ import build_service
from runtime.parameters import Parameters
from runtime.tokenizer import Tokenizer

MESSAGES = [{"role": "user", "content": "Name a colour."}]
IMAGE = [{"role": "user", "content": [{"type": "image_url"}]}]
HALF = [{"role": "user", "content": "\ud800"}]


def error_of(response: Response) -> tuple[int, str, Any]:
    error = response.data["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return response.status, error["message"], error["param"]


def test_health_live_and_models(server: LocalServer) -> None:
    assert server.get("/health").status == 200
    assert server.get("/live").status == 200
    (card,) = server.get("/v1/models").data["data"]
    assert server.get(f"/v1/models/{card['id']}").data == card
    assert server.get("/v1/models/another").status == 404


def test_completion(server: LocalServer, tokenizer: Tokenizer) -> None:
    reply = server.complete("Once upon a time", return_token_ids=True).data
    (choice,) = reply["choices"]
    assert reply["object"] == "text_completion"
    assert choice["finish_reason"] == "length"
    assert len(choice["token_ids"]) == 12
    assert tokenizer.decode(choice["token_ids"]) == choice["text"]
    assert choice["prompt_token_ids"] == tokenizer.encode("Once upon a time")
    assert reply["usage"]["completion_tokens"] == 12
    assert reply["usage"]["prompt_tokens"] == len(choice["prompt_token_ids"])


def test_token_ids_give_the_same_reply_as_their_text(server: LocalServer, tokenizer: Tokenizer) -> None:
    text = "Once upon a time"
    assert server.complete(tokenizer.encode(text)).data["choices"] == server.complete(text).data["choices"]


def test_several_prompts_become_several_choices(server: LocalServer) -> None:
    single = server.complete("Once upon").data["choices"][0]["text"]
    reply = server.complete(["Once upon", "In the end"]).data
    assert [choice["index"] for choice in reply["choices"]] == [0, 1]
    assert reply["choices"][0]["text"] == single
    assert reply["usage"]["completion_tokens"] == 24


def test_chat_completion(server: LocalServer) -> None:
    body = {"messages": MESSAGES, "max_tokens": 5, "temperature": 0, "ignore_eos": True}
    reply = server.post("/v1/chat/completions", body).data
    (choice,) = reply["choices"]
    assert reply["object"] == "chat.completion"
    assert choice["message"]["role"] == "assistant"
    parts = [{"role": "user", "content": [{"type": "text", "text": MESSAGES[0]["content"]}]}]
    assert server.post("/v1/chat/completions", {**body, "messages": parts}).data["choices"] == reply["choices"]
    completion_tokens = server.post("/v1/chat/completions", {**body, "max_completion_tokens": 3}).data["usage"]
    assert completion_tokens["completion_tokens"] == 3


def test_logprobs_of_a_completion(server: LocalServer) -> None:
    logprobs = server.complete("Once upon", logprobs=3).data["choices"][0]["logprobs"]
    assert len(logprobs["tokens"]) == len(logprobs["token_logprobs"]) == 12
    for token, logprob, top in zip(
        logprobs["tokens"], logprobs["token_logprobs"], logprobs["top_logprobs"], strict=True
    ):
        assert logprob <= 0
        assert max(top.values()) == pytest.approx(logprob)
        assert token in top


def test_logprobs_of_a_chat(server: LocalServer) -> None:
    body = {"messages": MESSAGES, "max_tokens": 3, "temperature": 0, "ignore_eos": True, "logprobs": True}
    content = server.post("/v1/chat/completions", {**body, "top_logprobs": 2}).data["choices"][0]["logprobs"]["content"]
    assert len(content) == 3
    for entry in content:
        assert len(entry["top_logprobs"]) == 2
        assert entry["top_logprobs"][0]["logprob"] == pytest.approx(entry["logprob"])


def test_a_prediction_changes_no_answer_and_is_accounted_for(server: LocalServer, tokenizer: Tokenizer) -> None:
    plain = server.complete("Once upon").data["choices"]
    for content in ("a time", plain[0]["text"], "", [{"type": "text", "text": "a "}, {"type": "text", "text": "time"}]):
        predicted = server.complete("Once upon", prediction={"type": "content", "content": content}).data
        text = content if isinstance(content, str) else "a time"
        assert predicted["choices"] == plain
        assert predicted["usage"]["completion_tokens"] == 12
        details = predicted["usage"]["completion_tokens_details"]
        assert min(details.values()) >= 0
        assert sum(details.values()) == len(tokenizer.encode_continuation(text))
        assert details["accepted_prediction_tokens"] <= 12


def test_a_prediction_in_a_chat_and_in_a_stream(server: LocalServer, tokenizer: Tokenizer) -> None:
    prediction = {"type": "content", "content": "Red."}
    chat = {"messages": MESSAGES, "max_tokens": 5, "temperature": 0, "prediction": prediction}
    details = server.post("/v1/chat/completions", chat).data["usage"]["completion_tokens_details"]
    assert sum(details.values()) == len(tokenizer.encode_continuation("Red."))
    streamed = server.complete(
        "Once upon", stream=True, stream_options={"include_usage": True}, prediction=prediction
    )
    assert sum(streamed.events[-1]["usage"]["completion_tokens_details"].values()) == sum(details.values())


@pytest.mark.parametrize(
    ("prediction", "message"),
    [
        ("a time", "'prediction' must be an object"),
        ({"content": "a time"}, "'prediction.type' must be 'content'"),
        ({"type": "file", "content": "a time"}, "'prediction.type' must be 'content'"),
        ({"type": "content"}, "'prediction' needs a 'content'"),
        ({"type": "content", "content": 3}, "a prediction's 'content' must be a string or a list of text parts"),
        ({"type": "content", "content": [{"type": "image_url"}]}, "must be a string or a list of text parts"),
        ({"type": "content", "content": "\ud800"}, "'prediction' is not valid Unicode"),
    ],
)
def test_a_wrong_prediction_is_refused_by_both_routes(server: LocalServer, prediction: Any, message: str) -> None:
    chat = server.post("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 2, "prediction": prediction})
    for response in (server.complete("Once", prediction=prediction), chat):
        status, text, param = error_of(response)
        assert (status, param) == (400, "prediction")
        assert message in text


def test_a_prediction_is_of_one_completion(server: LocalServer) -> None:
    response = server.complete(["Once", "Twice"], prediction={"type": "content", "content": "a time"})
    status, message, param = error_of(response)
    assert (status, param) == (400, "prediction")
    assert "2 are asked for" in message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"prompt": ["Once"] * 3, "n": 100}, "n"),
        ({"echo": True}, "echo"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "8"}, "max_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"stop": [""]}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"logprobs": 1000}, "logprobs"),
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1 << 40]}, "prompt"),
        ({"prompt": [True]}, "prompt"),
        ({"prompt": "half a pair: \ud800"}, "prompt"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 3}}}}, "response_format"),
    ],
)
def test_refused_fields(server: LocalServer, fields: dict[str, Any], param: str) -> None:
    status, _, named = error_of(server.complete("Once", **fields))
    assert (status, named) == (400, param)


def test_fields_that_change_nothing_or_are_unknown_are_taken(server: LocalServer) -> None:
    assert server.complete("Once", n=1, echo=False, logprobs=None, made_up_field=1, user="somebody").status == 200


def test_bad_json_wrong_model_and_wrong_route(server: LocalServer) -> None:
    broken = server.start("POST", "/v1/completions", body=b"{").result(timeout=60)
    assert error_of(broken)[0] == 400
    status, message, param = error_of(server.complete("Once", model="another"))
    assert (status, param) == (404, "model")
    assert "'another'" in message
    assert error_of(server.get("/v1/nothing"))[0] == 404
    assert error_of(server.get("/v1/completions"))[0] == 405


def test_a_prompt_beyond_the_context_is_refused_by_its_length(server: LocalServer) -> None:
    limit = server.service.limits.max_context_tokens
    status, message, _ = error_of(server.complete([5] * limit))
    assert status == 400
    assert f"maximum context length is {limit} tokens" in message


def test_the_context_can_be_filled_to_the_last_token(server: LocalServer) -> None:
    limit = server.service.limits.max_context_tokens
    assert server.complete([5] * (limit - 2), max_tokens=2).data["usage"]["total_tokens"] == limit


def test_chat_without_messages_is_refused(server: LocalServer) -> None:
    for messages in (None, [], [{"content": "no role"}], IMAGE, HALF):
        assert error_of(server.post("/v1/chat/completions", {"messages": messages}))[0] == 400


def test_request_ids_are_taken_and_made(server: LocalServer) -> None:
    assert server.get("/v1/models", headers={"x-request-id": "abc"}).headers["x-request-id"] == "abc"
    assert server.get("/v1/models").headers["x-request-id"]


def test_api_key(model_dir: Path) -> None:
    parameters = replace(Parameters(), max_waiting=4)
    with LocalServer(build_service(model_dir, parameters=parameters, api_key="secret")) as guarded:
        assert error_of(guarded.get("/v1/models"))[0] == 401
        assert error_of(guarded.get("/v1/models", headers={"authorization": "Bearer wrong"}))[0] == 401
        assert guarded.get("/v1/models", headers={"authorization": "Bearer secret"}).status == 200
        assert guarded.get("/health").status == 200


def test_metrics_count_tokens_and_name_every_span(server: LocalServer) -> None:
    def counter(name: str) -> float:
        text = server.get("/metrics").body.decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name + "{"))

    before = counter("vllm:generation_tokens_total")
    server.complete("Once upon a time")
    assert counter("vllm:generation_tokens_total") == before + 12
    assert counter("vllm:num_requests_running") == 0
    text = server.get("/metrics").body.decode()
    for span in spans.NAMES:
        assert f'vibeserve_span_seconds_total{{span="{span}"}}' in text
    for name in ("vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds"):
        assert f"{name}_bucket" in text
