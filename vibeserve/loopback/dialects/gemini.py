"""Gemini generateContent and streamGenerateContent: https://ai.google.dev/api/generate-content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from vibeserve.loopback.dialects.neutral import Answer, Asked, Event, pieces


class Gemini:
    def read(self, body: Mapping[str, Any], path: str) -> Asked:
        contents = body.get("contents") or []
        parts = [part for content in contents for part in content.get("parts") or []]
        tools = [tool.get("functionDeclarations") or [] for tool in body.get("tools") or []]
        said = [each for each in contents if each.get("role") == "model" and not _has(each, "functionCall")]
        return Asked(
            model=path.rpartition("/")[2].partition(":")[0],
            is_stream=path.endswith(":streamGenerateContent"),
            prompts=tuple(_texts(each) for each in contents if each.get("role") == "user"),
            said=tuple(_texts(each) for each in said),
            num_results=sum(1 for part in parts if "functionResponse" in part),
            texts=(_texts(body.get("systemInstruction") or {}), *(_text(part) for part in parts)),
            tools=tuple(str(function.get("name")) for functions in tools for function in functions),
        )

    def document(self, answer: Answer, model: str) -> dict[str, Any]:
        return _chunk(answer, model, [_part(answer, answer.text)], is_last=True)

    def events(self, answer: Answer, model: str) -> list[Event]:
        texts = [""] if answer.tool else pieces(answer.text)
        last = len(texts) - 1
        chunks = [
            _chunk(answer, model, [_part(answer, text)], is_last=number == last) for number, text in enumerate(texts)
        ]
        return [("", chunk) for chunk in chunks]

    def error(self, status: int, message: str) -> dict[str, Any]:
        kinds = {401: "UNAUTHENTICATED", 404: "NOT_FOUND", 429: "RESOURCE_EXHAUSTED"}
        return {"error": {"code": status, "message": message, "status": kinds.get(status, "INTERNAL")}}


def _has(content: Mapping[str, Any], word: str) -> bool:
    return any(word in part for part in content.get("parts") or [])


def _texts(content: Mapping[str, Any]) -> str:
    return "\n".join(str(part["text"]) for part in content.get("parts") or [] if "text" in part)


def _text(part: Mapping[str, Any]) -> str:
    return str(part["text"]) if "text" in part else json.dumps(part)


def _part(answer: Answer, text: str) -> dict[str, Any]:
    if not answer.tool:
        return {"text": text}
    return {
        "functionCall": {"id": f"call_{answer.ident}", "name": answer.tool, "args": dict(answer.arguments)}
    }  # fmt: skip


def _chunk(answer: Answer, model: str, parts: list[dict[str, Any]], *, is_last: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": parts}, "index": 0}
    if answer.is_refusal:
        candidate = {"index": 0}
    if is_last:
        candidate["finishReason"] = "SAFETY" if answer.is_refusal else "STOP"
    head = {"responseId": answer.ident, "modelVersion": model}
    return {**head, "candidates": [candidate], "usageMetadata": _usage(answer)}


def _usage(answer: Answer) -> dict[str, Any]:
    """Here thoughts are no part of the candidates' tokens."""
    usage = answer.usage
    return {
        "promptTokenCount": usage.input,
        "cachedContentTokenCount": usage.cached,
        "candidatesTokenCount": usage.output - usage.reasoning,
        "thoughtsTokenCount": usage.reasoning,
        "totalTokenCount": usage.input + usage.output,
    }
