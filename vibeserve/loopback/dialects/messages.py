"""Anthropic Messages: https://docs.anthropic.com/en/api/messages and .../messages-streaming."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vibeserve.loopback.dialects.neutral import Answer, Asked, Event, pieces, text_of


class Messages:
    def read(self, body: Mapping[str, Any], path: str) -> Asked:
        messages = body.get("messages") or []
        blocks = [block for each in messages for block in _blocks(each)]
        said = [each for each in messages if each.get("role") == "assistant" and not _has(each, "tool_use")]
        return Asked(
            model=str(body.get("model", "")),
            is_stream=bool(body.get("stream")),
            prompts=tuple(text_of(each.get("content")) for each in messages if each.get("role") == "user"),
            said=tuple(text_of(each.get("content")) for each in said),
            num_results=sum(1 for block in blocks if block.get("type") == "tool_result"),
            texts=(text_of(body.get("system")), *(_text(block) for block in blocks)),
            tools=tuple(str(tool.get("name")) for tool in body.get("tools") or []),
        )

    def document(self, answer: Answer, model: str) -> dict[str, Any]:
        block = _block(answer)
        content = [] if not answer.tool and not answer.text else [block]
        return {**_head(answer, model), "content": content, "stop_reason": _stop(answer), "usage": _usage(answer)}

    def events(self, answer: Answer, model: str) -> list[Event]:
        begun = {**_head(answer, model), "usage": {**_usage(answer), "output_tokens": 1}}
        end = {"stop_reason": _stop(answer), "stop_sequence": None}
        documents = [
            {"type": "message_start", "message": begun},
            *_block_events(answer),
            {"type": "message_delta", "delta": end, "usage": _usage(answer)},
            {"type": "message_stop"},
        ]
        return [(str(each["type"]), each) for each in documents]

    def error(self, status: int, message: str) -> dict[str, Any]:
        kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
        return {"type": "error", "error": {"type": kinds.get(status, "api_error"), "message": message}}


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content or [] if isinstance(block, Mapping)]


def _has(message: Mapping[str, Any], kind: str) -> bool:
    return any(block.get("type") == kind for block in _blocks(message))


def _text(block: Mapping[str, Any]) -> str:
    if block.get("type") == "tool_use":
        return json.dumps(block.get("input"))
    return str(block["text"]) if "text" in block else text_of(block.get("content"))


def _head(answer: Answer, model: str) -> dict[str, Any]:
    return {
        "id": f"msg_{answer.ident}", "type": "message", "role": "assistant", "model": model, "content": [],
        "stop_reason": None, "stop_sequence": None,
    }  # fmt: skip


def _stop(answer: Answer) -> str:
    return "tool_use" if answer.tool else "refusal" if answer.is_refusal else "end_turn"


def _block(answer: Answer) -> dict[str, Any]:
    if answer.tool:
        return {
            "type": "tool_use", "id": f"toolu_{answer.ident}", "name": answer.tool, "input": dict(answer.arguments)
        }  # fmt: skip
    return {"type": "text", "text": answer.text}


def _block_events(answer: Answer) -> list[dict[str, Any]]:
    if not answer.tool and not answer.text:
        return []
    nothing: dict[str, Any] = {"input": {}} if answer.tool else {"text": ""}
    begun = {**_block(answer), **nothing}
    kind, word = ("input_json_delta", "partial_json") if answer.tool else ("text_delta", "text")
    whole = json.dumps(dict(answer.arguments)) if answer.tool else answer.text
    deltas = [{"type": kind, word: piece} for piece in pieces(whole)]
    return [
        {"type": "content_block_start", "index": 0, "content_block": begun},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
    ]


def _usage(answer: Answer) -> dict[str, Any]:
    """Here what is cached is no part of the input tokens."""
    usage = answer.usage
    return {
        "input_tokens": usage.input - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
    }
