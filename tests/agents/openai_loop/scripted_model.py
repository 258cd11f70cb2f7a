"""A model behind the SDK's own client, without a socket: it answers what a test lays down, in either API."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2
import openai

RESPONSES, CHAT = "/v1/responses", "/v1/chat/completions"
KEY = "sk-test-0123456789abcdef"


@dataclass(frozen=True, kw_only=True)
class Say:
    """One answer. `calls` are (name, arguments), arguments a mapping or raw text."""

    text: str = ""
    calls: Sequence[tuple[str, Any]] = ()
    reasoning: str = ""
    refusal: str = ""
    usage: tuple[int, int] | None = (100, 10)
    """(input, output) tokens; None = not told"""
    status: str = "completed"


def call(name: str, /, **arguments: Any) -> Say:
    """An answer that calls one tool."""
    return Say(calls=[(name, arguments)])


def submit(**output: Any) -> Say:
    return call("submit", **(output or {"status": "done"}))


def failed(status: int, message: str = "no", *, headers: dict[str, str] | None = None, **error: Any) -> httpx2.Response:
    """An error as the API words it."""
    return httpx2.Response(status, json={"error": {"message": message, **error}}, headers=headers or {})


Reply = Say | httpx2.Response | Exception | Callable[[dict[str, Any]], Any]


@dataclass(kw_only=True)
class ScriptedModel:
    """Answers in turn; the last reply again and again. Paths it does not serve are 404."""

    replies: list[Reply]
    paths: tuple[str, ...] = (RESPONSES, CHAT)
    requests: list[dict[str, Any]] = field(default_factory=list)
    """bodies of those served"""
    headers: list[httpx2.Headers] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """paths, in order"""

    def make_client(self, base_url: str, api_key: str) -> openai.OpenAI:
        transport = httpx2.MockTransport(self._handle)
        return openai.OpenAI(
            base_url=base_url, api_key=api_key, max_retries=0, http_client=httpx2.Client(transport=transport)
        )

    def _handle(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request.url.path)
        self.headers.append(request.headers)
        if request.url.path not in self.paths:
            return httpx2.Response(404, json={"detail": "Not Found"})
        self.requests.append(json.loads(request.content))
        reply: Any = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if callable(reply):
            reply = reply(self.requests[-1])
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, httpx2.Response):
            return reply
        render = _responses if request.url.path == RESPONSES else _chat
        return httpx2.Response(200, json=render(reply, len(self.requests)))

    def results(self, number: int = -1) -> list[str]:
        """Texts of the tool results in one request."""
        body = self.requests[number]
        if "input" in body:
            return [item["output"] for item in body["input"] if item.get("type") == "function_call_output"]
        return [message["content"] for message in body["messages"] if message["role"] == "tool"]


def _arguments(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _responses(said: Say, number: int) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if said.reasoning:
        output.append({
            "type": "reasoning", "id": f"rs_{number}", "encrypted_content": f"sealed-{number}",
            "summary": [{"type": "summary_text", "text": said.reasoning}],
        })  # fmt: skip
    parts = [{"type": "output_text", "text": said.text, "annotations": []}] if said.text else []
    parts += [{"type": "refusal", "refusal": said.refusal}] if said.refusal else []
    if parts:
        output.append({"type": "message", "id": f"msg_{number}", "role": "assistant", "content": parts})
    output += [
        {"type": "function_call", "id": f"fc_{number}_{k}", "call_id": f"call_{number}_{k}", "name": name,
         "arguments": _arguments(arguments), "status": "completed"}
        for k, (name, arguments) in enumerate(said.calls)
    ]  # fmt: skip
    usage = None
    if said.usage is not None:
        usage = {
            "input_tokens": said.usage[0], "input_tokens_details": {"cached_tokens": said.usage[0] // 2},
            "output_tokens": said.usage[1], "output_tokens_details": {"reasoning_tokens": said.usage[1] // 2},
        }  # fmt: skip
    return {"id": f"resp_{number}", "object": "response", "status": said.status, "error": None, "output": output,
            "usage": usage}  # fmt: skip


def _chat(said: Say, number: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.text or None}
    if said.refusal:
        message["refusal"] = said.refusal
    if said.reasoning:
        message["reasoning_content"] = said.reasoning
    if said.calls:
        message["tool_calls"] = [
            {"id": f"call_{number}_{k}", "type": "function",
             "function": {"name": name, "arguments": _arguments(arguments)}}
            for k, (name, arguments) in enumerate(said.calls)
        ]  # fmt: skip
    document: dict[str, Any] = {
        "id": f"chatcmpl-{number}", "object": "chat.completion",
        "choices": [{"index": 0, "message": message,
                     "finish_reason": "length" if said.status == "incomplete" else "stop"}],
    }  # fmt: skip
    if said.usage is not None:
        document["usage"] = {
            "prompt_tokens": said.usage[0], "prompt_tokens_details": {"cached_tokens": said.usage[0] // 2},
            "completion_tokens": said.usage[1], "completion_tokens_details": {"reasoning_tokens": said.usage[1] // 2},
        }  # fmt: skip
    return document
