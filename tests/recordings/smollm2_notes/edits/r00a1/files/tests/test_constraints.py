"""Constrained replies are valid whatever the model would rather say."""

from __future__ import annotations

import json
from typing import Any

from local_server import LocalServer

SCHEMA = {
    "type": "object",
    "properties": {
        "colour": {"enum": ["red", "green", "blue"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
        "is_ready": {"type": "boolean"},
    },
    "required": ["colour", "count", "is_ready"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA, "strict": True}}


def check(value: Any) -> None:
    assert value["colour"] in ("red", "green", "blue")
    assert isinstance(value["count"], int)
    assert isinstance(value["is_ready"], bool)
    assert set(value) == {"colour", "count", "is_ready"}


def test_schema_holds_for_greedy_and_sampled_replies(server: LocalServer) -> None:
    for fields in ({"temperature": 0}, {"temperature": 1.0, "seed": 1}, {"temperature": 2.0, "seed": 2}):
        body = {"messages": [{"role": "user", "content": "A thing."}], "max_tokens": 160, "response_format": FORMAT}
        (choice,) = server.post("/v1/chat/completions", {**body, **fields}).data["choices"]
        assert choice["finish_reason"] == "stop"
        check(json.loads(choice["message"]["content"]))


def test_schema_holds_in_a_stream_that_ignores_the_end_token(server: LocalServer) -> None:
    stream = server.complete("A thing: ", max_tokens=160, response_format=FORMAT, stream=True)
    check(json.loads("".join(choice["text"] for choice in stream.choice_events)))


def test_json_object_begins_as_an_object(server: LocalServer) -> None:
    text = server.complete("A thing: ", response_format={"type": "json_object"}).data["choices"][0]["text"]
    assert text.lstrip().startswith("{")


def test_plain_text_is_not_constrained(server: LocalServer) -> None:
    plain = server.complete("A thing: ").data["choices"]
    assert server.complete("A thing: ", response_format={"type": "text"}).data["choices"] == plain
