"""OpenAI Responses: https://platform.openai.com/docs/api-reference/responses and .../responses-streaming."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vibeserve.loopback.dialects.neutral import CREATED_S, Answer, Asked, Event, pieces, text_of


class Responses:
    def read(self, body: Mapping[str, Any], path: str) -> Asked:
        given = body.get("input") or []
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        results = [item for item in items if str(item.get("type", "")).endswith("_output")]
        texts = [str(body.get("instructions") or "")]
        for item in items:
            texts.append(text_of(item.get("content") or item.get("output")) or str(item.get("arguments") or ""))
        return Asked(
            model=str(body.get("model", "")),
            is_stream=bool(body.get("stream")),
            prompts=tuple(text_of(item.get("content")) for item in items if item.get("role") == "user"),
            said=tuple(text_of(item.get("content")) for item in items if item.get("role") == "assistant"),
            num_results=len(results),
            texts=tuple(texts),
            tools=tuple(str(tool.get("name")) for tool in body.get("tools") or [] if tool.get("type") == "function"),
        )

    def document(self, answer: Answer, model: str) -> dict[str, Any]:
        return {**_head(answer, model), "status": "completed", "output": [_item(answer)], "usage": _usage(answer)}

    def events(self, answer: Answer, model: str) -> list[Event]:
        item = _item(answer)
        nothing: dict[str, Any] = {"arguments": ""} if answer.tool else {"content": []}
        begun = {**item, "status": "in_progress", **nothing}
        documents: list[dict[str, Any]] = [
            {"type": "response.created", "response": _head(answer, model)},
            {"type": "response.in_progress", "response": _head(answer, model)},
            {"type": "response.output_item.added", "output_index": 0, "item": begun},
            *(_argument_events(answer) if answer.tool else _text_events(answer)),
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": self.document(answer, model)},
        ]
        return [(str(each["type"]), {**each, "sequence_number": number}) for number, each in enumerate(documents)]

    def error(self, status: int, message: str) -> dict[str, Any]:
        return openai_error(status, message)


def openai_error(status: int, message: str) -> dict[str, Any]:
    """The error of both APIs of OpenAI's."""
    codes = {401: "invalid_api_key", 404: "not_found", 429: "rate_limit_exceeded"}
    code = codes.get(status, "server_error")
    return {"error": {"message": message, "type": code, "param": None, "code": code}}


def _head(answer: Answer, model: str) -> dict[str, Any]:
    return {
        "id": f"resp_{answer.ident}", "object": "response", "created_at": CREATED_S, "model": model,
        "status": "in_progress", "output": [], "parallel_tool_calls": False, "tool_choice": "auto", "tools": [],
        "error": None, "incomplete_details": None, "instructions": None, "metadata": {}, "usage": None,
    }  # fmt: skip


def _usage(answer: Answer) -> dict[str, Any]:
    usage = answer.usage
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }


def _item(answer: Answer) -> dict[str, Any]:
    if answer.tool:
        return {
            "type": "function_call", "id": f"fc_{answer.ident}", "call_id": f"call_{answer.ident}",
            "name": answer.tool, "arguments": json.dumps(dict(answer.arguments)), "status": "completed",
        }  # fmt: skip
    return {
        "type": "message", "id": f"msg_{answer.ident}", "role": "assistant", "status": "completed",
        "content": [_content(answer, answer.text)],
    }  # fmt: skip


def _content(answer: Answer, text: str) -> dict[str, Any]:
    if answer.is_refusal:
        return {"type": "refusal", "refusal": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _argument_events(answer: Answer) -> list[dict[str, Any]]:
    where = {"item_id": f"fc_{answer.ident}", "output_index": 0}
    arguments = json.dumps(dict(answer.arguments))
    kind = "response.function_call_arguments"
    deltas = [{"type": f"{kind}.delta", **where, "delta": piece} for piece in pieces(arguments)]
    return [*deltas, {"type": f"{kind}.done", **where, "name": answer.tool, "arguments": arguments}]


def _text_events(answer: Answer) -> list[dict[str, Any]]:
    where = {"item_id": f"msg_{answer.ident}", "output_index": 0, "content_index": 0}
    kind, word = ("response.refusal", "refusal") if answer.is_refusal else ("response.output_text", "text")
    extra: dict[str, Any] = {} if answer.is_refusal else {"logprobs": []}
    return [
        {"type": "response.content_part.added", **where, "part": _content(answer, "")},
        *({"type": f"{kind}.delta", **where, "delta": piece, **extra} for piece in pieces(answer.text)),
        {"type": f"{kind}.done", **where, word: answer.text, **extra},
        {"type": "response.content_part.done", **where, "part": _content(answer, answer.text)},
    ]
