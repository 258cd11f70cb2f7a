"""The thin server that peers without one stand behind, over an engine that writes what it is told."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from starlette.testclient import TestClient

from vibeserve.baselines.launchers.peer_server.asking import Ask, BadRequestError, Limits, parse
from vibeserve.baselines.launchers.peer_server.serving import create_app
from vibeserve.baselines.launchers.peer_server.streams import Detokenizer, TokenStream

LIMITS = Limits(max_sequence_tokens=20, vocab_size=256, constrains=True)
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "integer"}}}


class Bytes:
    """A tokenizer whose ids are the bytes of the text."""

    vocab_size = 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: list[int]) -> str:
        return bytes(token_ids).decode(errors="replace")


class Scripted:
    """Writes the steps that it is given, then ends as told."""

    limits = LIMITS

    def __init__(self, steps: list[bytes], *, reason: str = "stop", fault: str = "") -> None:
        self.steps, self.reason, self.fault = steps, reason, fault
        self.asked: list[Ask] = []
        self.streams: list[TokenStream] = []

    def check(self, ask: Ask) -> None:
        if ask.schema == json.dumps({"type": "nothing"}):
            raise BadRequestError("response_format: the schema cannot be enforced: no such type")

    def submit(self, ask: Ask, stream: TokenStream) -> None:
        self.asked.append(ask)
        self.streams.append(stream)
        threading.Thread(target=self.write, args=(stream,)).start()

    def write(self, stream: TokenStream) -> None:
        for step in self.steps:
            stream.put(list(step))
        if self.fault:
            stream.fail(self.fault)
        elif self.reason:
            stream.end(self.reason)

    def run(self) -> None: ...


@contextmanager
def client_of(engine: Scripted) -> Iterator[TestClient]:
    with TestClient(create_app(engine, texts=Bytes(), model_name="model")) as client:  # type: ignore[arg-type]
        yield client


def body_with(**fields: Any) -> dict[str, Any]:
    return {"prompt": "once", "max_tokens": 9, "temperature": 0.0, **fields}


def parsed(**fields: Any) -> Ask:
    return parse(body_with(**fields), encode=Bytes().encode, limits=LIMITS)


def test_what_a_load_generator_sends_is_understood() -> None:
    """The body of the dialect `vllm`, as it is."""
    from vibeserve.core.nouns import PromptRequest
    from vibeserve.modalities.text.wire import body_of

    payload = {"response_format": SCHEMA, "prediction": {"type": "content", "content": "twice"}}
    request = PromptRequest(request_id="1", prompt="once", num_prompt_tokens=4, max_tokens=9, payload=payload)
    ask = parse(body_of("vllm", request, model="model"), encode=Bytes().encode, limits=LIMITS)
    assert ask == Ask(
        prompt_ids=(111, 110, 99, 101), max_tokens=9, ignore_eos=True, schema='{"type": "integer"}', is_streamed=True,
        wants_usage=True,
    )  # fmt: skip
    assert parsed(prompt=[1, 2]).prompt_ids == (1, 2)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"temperature": 0.7}, "'temperature' must be 0: this server decodes greedily"),
        ({"temperature": None}, "'temperature' must be 0: this server decodes greedily"),
        ({"n": 2}, "'n' is not supported by this server"),
        ({"stop": ["END"]}, "'stop' is not supported by this server"),
        ({"logprobs": 5}, "'logprobs' is not supported by this server"),
        ({"logit_bias": {"5": 1}}, "'logit_bias' is not supported by this server"),
        ({"max_tokens": 0}, "'max_tokens' must be an integer of 1 or more"),
        ({"max_tokens": True}, "'max_tokens' must be an integer of 1 or more"),
        ({"prompt": ""}, "'prompt' is empty"),
        ({"prompt": ["a", "b"]}, "'prompt' must be one string or one list of token ids"),
        ({"prompt": [256]}, "token ids must be from 0 to 255"),
        (
            {"max_tokens": 17},
            "this server's maximum context length is 20 tokens; the request asks for 21 (4 in the prompt, 17 for the "
            "completion)",
        ),
        ({"response_format": {"type": "json_object"}}, "'response_format.type' must be text or json_schema"),
        (
            {"response_format": {"type": "json_schema"}},
            "'response_format.json_schema.schema' must be a JSON Schema object",
        ),
    ],
)
def test_what_is_not_done_is_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        parsed(**fields)
    assert str(caught.value) == text


def test_a_server_that_constrains_nothing_says_so() -> None:
    limits = Limits(max_sequence_tokens=20, vocab_size=256, constrains=False)
    with pytest.raises(BadRequestError, match="'response_format' is not supported by this server"):
        parse(body_with(response_format=SCHEMA), encode=Bytes().encode, limits=limits)
    assert parse(body_with(response_format={"type": "text"}), encode=Bytes().encode, limits=limits).schema is None


def test_a_whole_reply_and_its_usage() -> None:
    engine = Scripted([b"on", b"ce"])
    with client_of(engine) as client:
        assert client.get("/health").status_code == 200
        assert client.get("/v1/models").json()["data"][0]["id"] == "model"
        reply = client.post("/v1/completions", json=body_with()).json()
    assert reply["choices"] == [
        {"index": 0, "text": "once", "token_ids": list(b"once"), "logprobs": None, "finish_reason": "stop"}
    ]
    assert reply["usage"] == {"prompt_tokens": 4, "completion_tokens": 4, "total_tokens": 8}


def test_a_streamed_reply_is_one_event_a_step_and_holds_back_half_characters() -> None:
    euro = "€".encode()
    engine = Scripted([b"a" + euro[:1], euro[1:], euro[:2]], reason="length")
    with client_of(engine) as client:
        answer = client.post(
            "/v1/completions", json=body_with(stream=True, stream_options={"include_usage": True})
        )
    lines = [line[6:] for line in answer.text.splitlines() if line]
    assert lines[-1] == "[DONE]"
    events = [json.loads(line) for line in lines[:-1]]
    choices = [event["choices"][0] for event in events[:-1]]
    # what never became a character is told at the end, as it decodes
    assert [choice["text"] for choice in choices] == ["", "a€", "", "\ufffd"]
    assert [len(choice["token_ids"]) for choice in choices] == [2, 2, 2, 0]
    assert [choice["finish_reason"] for choice in choices] == [None, None, None, "length"]
    assert events[-1]["usage"]["completion_tokens"] == 6


def test_faults_are_told_and_bad_bodies_are_400() -> None:
    engine = Scripted([b"x"], fault="the request does not fit the KV cache")
    with client_of(engine) as client:
        answer = client.post("/v1/completions", json=body_with(stream=True))
        assert '"message": "the request does not fit the KV cache"' in answer.text
        assert client.post("/v1/completions", content=b"[]").json()["error"]["message"] == (
            "the body must be a JSON object"
        )
        assert client.post("/v1/completions", content=b"{").status_code == 400
        impossible = {"type": "json_schema", "json_schema": {"schema": {"type": "nothing"}}}
        answer = client.post("/v1/completions", json=body_with(response_format=impossible))
        assert (answer.status_code, "no such type" in answer.text) == (400, True)
    assert len(engine.asked) == 1


def test_text_comes_out_whole_however_it_is_cut() -> None:
    text = "naïve €5 – 東京 🙂 end"
    ids = list(text.encode())
    for size in (1, 2, 3, 5, 7):
        detokenizer = Detokenizer(Bytes().decode)
        pieces = [detokenizer.add(ids[start : start + size]) for start in range(0, len(ids), size)]
        assert "".join(pieces) + detokenizer.flush() == text
        assert not any("\ufffd" in piece for piece in pieces)
