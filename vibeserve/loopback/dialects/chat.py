"""OpenAI Chat Completions: https://platform.openai.com/docs/api-reference/chat and .../chat-streaming."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vibeserve.loopback.dialects.neutral import CREATED_S, Answer, Asked, Event, pieces, text_of
from vibeserve.loopback.dialects.responses import openai_error


class Chat:
    def read(self, body: Mapping[str, Any], path: str) -> Asked:
        messages = body.get("messages") or []
        tools = [tool.get("function") or {} for tool in body.get("tools") or []]
        answers = [each for each in messages if each.get("role") == "assistant" and not each.get("tool_calls")]
        return Asked(
            model=str(body.get("model", "")),
            is_stream=bool(body.get("stream")),
            prompts=tuple(text_of(each.get("content")) for each in messages if each.get("role") == "user"),
            said=tuple(text_of(each.get("content")) for each in answers),
            num_results=sum(1 for each in messages if each.get("role") == "tool"),
            texts=tuple(text_of(each.get("content")) or _arguments(each) for each in messages),
            tools=tuple(str(tool.get("name")) for tool in tools),
        )

    def document(self, answer: Answer, model: str) -> dict[str, Any]:
        message = {"role": "assistant", "content": None, "refusal": None, **_said(answer)}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(answer)}
        head = {**_head(answer, model), "object": "chat.completion"}
        return {**head, "choices": [choice], "usage": _usage(answer)}

    def events(self, answer: Answer, model: str) -> list[Event]:
        head = _head(answer, model)
        deltas = [{"role": "assistant", "content": "" if answer.text else None}, *_deltas(answer)]
        chunks = [{**head, "choices": [_choice(delta, None)], "usage": None} for delta in deltas]
        chunks.append({**head, "choices": [_choice({}, _finish(answer))], "usage": None})
        chunks.append({**head, "choices": [], "usage": _usage(answer)})
        return [*(("", chunk) for chunk in chunks), ("", "[DONE]")]

    def error(self, status: int, message: str) -> dict[str, Any]:
        return openai_error(status, message)


def _arguments(message: Mapping[str, Any]) -> str:
    calls = message.get("tool_calls") or []
    return "\n".join(str((call.get("function") or {}).get("arguments", "")) for call in calls)


def _head(answer: Answer, model: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{answer.ident}", "object": "chat.completion.chunk", "created": CREATED_S, "model": model,
        "system_fingerprint": None,
    }  # fmt: skip


def _choice(delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}


def _finish(answer: Answer) -> str:
    return "tool_calls" if answer.tool else "stop"


def _call(answer: Answer, arguments: str) -> dict[str, Any]:
    function = {"name": answer.tool, "arguments": arguments}
    return {"id": f"call_{answer.ident}", "type": "function", "function": function}


def _said(answer: Answer) -> dict[str, Any]:
    if answer.tool:
        return {"tool_calls": [_call(answer, json.dumps(dict(answer.arguments)))]}
    return {"refusal" if answer.is_refusal else "content": answer.text}


def _deltas(answer: Answer) -> list[dict[str, Any]]:
    if not answer.tool:
        word = "refusal" if answer.is_refusal else "content"
        return [{word: piece} for piece in pieces(answer.text)]
    rest = pieces(json.dumps(dict(answer.arguments)))
    first = {"tool_calls": [{"index": 0, **_call(answer, "")}]}
    return [first, *({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in rest)]


def _usage(answer: Answer) -> dict[str, Any]:
    usage = answer.usage
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }
