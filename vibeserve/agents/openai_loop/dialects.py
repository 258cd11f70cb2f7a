"""The two APIs: how a conversation is sent, and how an answer is read.

Sources: the OpenAI API reference, `POST /responses` and `POST /chat/completions`. Answers are read as they are found:
servers leave out what they have no word for.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vibeserve.agents.openai_loop.conversation import Conversation, ModelTurn, ToolCall, ToolResult
from vibeserve.agents.openai_loop.toolbox import Tool
from vibeserve.agents.requests import AgentUsage

ENCRYPTED = "reasoning.encrypted_content"
OPTIONAL = ("include", "prompt_cache_key", "parallel_tool_calls")
"""parameters that a server may refuse and is then asked without"""


class NoAnswerError(Exception):
    """A document that is no answer of this API. Internal to the back end."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a request says beside the conversation. None of it changes within a call."""

    model: str
    instructions: str
    tools: Sequence[Tool]
    effort: str
    key: str
    """session key: requests with the same one share a prefix"""


@dataclass(frozen=True, kw_only=True)
class Dialect:
    name: str
    path: str
    body: Callable[[Conversation, Asked], dict[str, Any]]
    turn: Callable[[Any], ModelTurn]
    items_key: str
    """where in a body the conversation stands"""


def _responses_body(conversation: Conversation, asked: Asked) -> dict[str, Any]:
    tools = [
        {"type": "function", "name": tool.name, "description": tool.description, "parameters": tool.parameters,
         "strict": False}
        for tool in asked.tools
    ]  # fmt: skip
    items: list[Mapping[str, Any]] = []
    for entry in conversation.entries:
        if isinstance(entry, str):
            items.append({"role": "user", "content": entry})
        elif isinstance(entry, ToolResult):
            items.append({"type": "function_call_output", "call_id": entry.call.call_id, "output": entry.text})
        else:
            items += entry.items
    effort = {"reasoning": {"effort": asked.effort}} if asked.effort else {}
    return {
        "model": asked.model, "instructions": asked.instructions, "tools": tools, "tool_choice": "auto",
        "parallel_tool_calls": True, "store": False, "include": [ENCRYPTED], "prompt_cache_key": asked.key, **effort,
        "input": items,
    }  # fmt: skip


def _responses_turn(data: Any) -> ModelTurn:
    output = data.get("output") if isinstance(data, dict) else None
    if not isinstance(output, list):
        raise NoAnswerError("it has no list 'output'")
    items = [item for item in output if isinstance(item, dict)]
    messages = [part for item in items if item.get("type") == "message" for part in _parts(item.get("content"))]
    reasoning = [part for item in items if item.get("type") == "reasoning" for part in _reasoning_parts(item)]
    raw_calls = [item for item in items if item.get("type") == "function_call"]
    calls = _calls([(item.get("call_id"), item.get("name"), item.get("arguments")) for item in raw_calls])
    return ModelTurn(
        text="\n".join(part["text"] for part in messages if part["type"] != "refusal").strip(),
        refusal="\n".join(part["text"] for part in messages if part["type"] == "refusal").strip(),
        reasoning="\n".join(reasoning).strip(), calls=calls, is_cut=data.get("status") == "incomplete",
        items=_responses_items(items, calls), usage=_usage(data.get("usage"), "input_tokens", "output_tokens"),
    )  # fmt: skip


def _responses_items(items: Sequence[Mapping[str, Any]], calls: Sequence[ToolCall]) -> tuple[Mapping[str, Any], ...]:
    """What goes back. Encrypted reasoning goes with everything that belongs to it, ids included. Without it ids would
    name what is not stored at the server, and reasoning would be one that it cannot read."""
    has_reasoning = any(item.get("type") == "reasoning" and item.get("encrypted_content") for item in items)
    kept: list[Mapping[str, Any]] = []
    left = list(calls)
    for item in items:
        if item.get("type") == "function_call":
            call = left.pop(0)
            row = {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": _resent(call)}
            kept.append({**item, **row} if has_reasoning else row)
        elif has_reasoning and item.get("type") in ("reasoning", "message"):
            kept.append(item)
        elif item.get("type") == "message":
            text = "\n".join(part["text"] for part in _parts(item.get("content")))
            kept += [{"role": "assistant", "content": text}] if text else []
    return tuple(kept)


def _chat_body(conversation: Conversation, asked: Asked) -> dict[str, Any]:
    tools = [
        {"type": "function",
         "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters}}
        for tool in asked.tools
    ]  # fmt: skip
    messages: list[Mapping[str, Any]] = [{"role": "system", "content": asked.instructions}]
    for entry in conversation.entries:
        if isinstance(entry, str):
            messages.append({"role": "user", "content": entry})
        elif isinstance(entry, ToolResult):
            messages.append({"role": "tool", "tool_call_id": entry.call.call_id, "content": entry.text})
        else:
            messages += entry.items
    effort = {"reasoning_effort": asked.effort} if asked.effort else {}
    return {
        "model": asked.model, "tools": tools, "tool_choice": "auto", "parallel_tool_calls": True, **effort,
        "messages": messages,
    }  # fmt: skip


def _chat_turn(data: Any) -> ModelTurn:
    choices = data.get("choices") if isinstance(data, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    choice: Mapping[str, Any] = first if isinstance(first, dict) else {}
    message = choice.get("message")
    if not isinstance(message, dict):
        raise NoAnswerError("it has no message in 'choices'")
    raw_calls = [call for call in message.get("tool_calls") or [] if isinstance(call, dict)]
    functions = [(call, call["function"]) for call in raw_calls if isinstance(call.get("function"), dict)]
    calls = _calls([(call.get("id"), function.get("name"), function.get("arguments")) for call, function in functions])
    text = "\n".join(part["text"] for part in _parts(message.get("content"))).strip()
    refusal, reasoning = message.get("refusal"), message.get("reasoning_content") or message.get("reasoning")
    item: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        item["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": _resent(call)}}
            for call in calls
        ]
    return ModelTurn(
        text=text, refusal=refusal.strip() if isinstance(refusal, str) else "", calls=calls, items=(item,),
        reasoning=reasoning.strip() if isinstance(reasoning, str) else "",
        is_cut=choice.get("finish_reason") in ("length", "content_filter"),
        usage=_usage(data.get("usage"), "prompt_tokens", "completion_tokens"),
    )  # fmt: skip


def _calls(rows: Sequence[tuple[Any, Any, Any]]) -> tuple[ToolCall, ...]:
    """Calls from (id, name, arguments). Local servers leave ids out, give the same to all, or give parsed arguments."""
    calls: list[ToolCall] = []
    for number, (call_id, name, arguments) in enumerate(rows):
        taken = {call.call_id for call in calls}
        usable = call_id if isinstance(call_id, str) and call_id and call_id not in taken else f"vibeserve_{number}"
        text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
        calls.append(ToolCall(call_id=usable, name=str(name or ""), arguments=text))
    return tuple(calls)


def _resent(call: ToolCall) -> str:
    """Arguments as they go back: templates of local servers parse them, and fail on what is no JSON object."""
    try:
        data = json.loads(call.arguments)
    except ValueError:
        return json.dumps({"not_json": call.arguments[:2000]}, ensure_ascii=False)
    return call.arguments if isinstance(data, dict) else json.dumps({"not_an_object": data}, ensure_ascii=False)


def _parts(content: Any) -> list[dict[str, str]]:
    """Texts of a message, each with its type (`refusal` or another)."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    told = [(str(part.get("type")), part.get("refusal") or part.get("text")) for part in parts]
    return [{"type": kind, "text": text} for kind, text in told if isinstance(text, str)]


def _reasoning_parts(item: Mapping[str, Any]) -> list[str]:
    return [part["text"] for key in ("summary", "content") for part in _parts(item.get(key))]


def _usage(data: Any, input_key: str, output_key: str) -> AgentUsage | None:
    """None where the server counts nothing: a prompt without tokens is no count."""
    if not isinstance(data, dict) or _count(data, input_key) + _count(data, output_key) == 0:
        return None
    inputs, outputs = data.get(f"{input_key}_details"), data.get(f"{output_key}_details")
    return AgentUsage(
        input_tokens=_count(data, input_key), cached_input_tokens=_count(inputs, "cached_tokens"),
        output_tokens=_count(data, output_key), reasoning_tokens=_count(outputs, "reasoning_tokens"), num_requests=1,
    )  # fmt: skip


def _count(data: Any, key: str) -> int:
    value = data.get(key) if isinstance(data, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


RESPONSES = Dialect(name="responses", path="/responses", body=_responses_body, turn=_responses_turn, items_key="input")
CHAT = Dialect(name="chat", path="/chat/completions", body=_chat_body, turn=_chat_turn, items_key="messages")
