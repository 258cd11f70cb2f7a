"""What a client prints, read: the final message, the transcript, and what it says went wrong."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vibeserve.agents.requests import Turn

MAX_TURN_CHARS = 20_000


@dataclass(frozen=True, kw_only=True)
class Parsed:
    text: str = ""
    """the final message; empty where the client has none, or failed"""
    turns: tuple[Turn, ...] = ()
    error: str = ""
    """what went wrong by the client's own account"""


Parser = Callable[[str], Parsed]


def parse_text(output: str) -> Parsed:
    """All of it is the final message."""
    text = output.strip()
    return Parsed(text=text, turns=_turns([("message", text, "")]))


def parse_codex_jsonl(output: str) -> Parsed:
    """`codex exec --json`: the last message of a turn that was completed."""
    rows: list[tuple[str, str, str]] = []
    text, error, is_complete = "", "", False
    for event in _documents(output):
        kind, item = event.get("type"), _object(event.get("item"))
        if kind == "item.completed":
            rows += _codex_item(item)
            text = str(item.get("text", "")) if item.get("type") == "agent_message" else text
        elif kind == "turn.completed":
            is_complete = True
        elif kind == "turn.failed":
            error = _message(event)
        elif kind == "error":
            rows.append(("note", _message(event), ""))
    return Parsed(text=text if is_complete and not error else "", turns=_turns(rows), error=error)


def _codex_item(item: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    kind = str(item.get("type", ""))
    if kind == "agent_message":
        return [("message", str(item.get("text", "")), "")]
    if kind == "reasoning":
        return [("reasoning", str(item.get("text", "")), "")]
    if kind == "error":
        return [("note", _message(item), "")]
    if kind == "command_execution":
        result = f"status {item.get('exit_code')}\n{item.get('aggregated_output', '')}"
        return [("tool_call", str(item.get("command", "")), "exec_command"), ("tool_result", result, "exec_command")]
    rest = {name: value for name, value in item.items() if name not in ("id", "type", "status")}
    return [("tool_call", json.dumps(rest), kind)]


def parse_claude_json(output: str) -> Parsed:
    """`claude -p --output-format json` or `stream-json`: the result, unless it `is_error`, whatever it says else."""
    rows: list[tuple[str, str, str]] = []
    result: Mapping[str, Any] = {}
    for event in _documents(output):
        kind = event.get("type")
        if kind in ("assistant", "user"):
            rows += [row for block in _blocks(event) for row in _claude_block(block)]
        elif kind == "result":
            result = event
    if not result:
        return Parsed(turns=_turns(rows), error="it printed no result")
    if result.get("is_error") or result.get("subtype") != "success":
        errors = result.get("errors") or [result.get("result") or result.get("subtype")]
        return Parsed(turns=_turns(rows), error="; ".join(str(error) for error in errors))
    structured = result.get("structured_output")
    text = json.dumps(structured) if structured is not None else str(result.get("result") or "")
    return Parsed(text=text, turns=_turns(rows))


def _blocks(event: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = _object(event.get("message")).get("content")
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [block for block in content or [] if isinstance(block, Mapping)]


def _claude_block(block: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    kind = block.get("type")
    if kind == "text":
        return [("message", str(block.get("text", "")), "")]
    if kind == "thinking":
        return [("reasoning", str(block.get("thinking", "")), "")]
    if kind == "tool_use":
        return [("tool_call", json.dumps(block.get("input")), str(block.get("name", "")))]
    if kind == "tool_result":
        content = block.get("content")
        return [("tool_result", content if isinstance(content, str) else json.dumps(content), "")]
    return []


def parse_opencode_jsonl(output: str) -> Parsed:
    """`opencode run --format json`: the texts after the last tool call."""
    rows: list[tuple[str, str, str]] = []
    texts: list[str] = []
    error = ""
    for event in _documents(output):
        kind, part = event.get("type"), _object(event.get("part"))
        if kind == "text":
            texts.append(str(part.get("text", "")))
            rows.append(("message", texts[-1], ""))
        elif kind == "reasoning":
            rows.append(("reasoning", str(part.get("text", "")), ""))
        elif kind == "tool_use":
            texts = []
            state, name = _object(part.get("state")), str(part.get("tool", ""))
            rows.append(("tool_call", json.dumps(state.get("input")), name))
            rows.append(("tool_result", str(state.get("output") or state.get("error") or ""), name))
        elif kind == "error":
            error = _message(event)
    return Parsed(text="" if error else "\n".join(texts), turns=_turns(rows), error=error)


def parse_gemini_json(output: str) -> Parsed:
    """`gemini --output-format json` or `stream-json`: the response, or the messages after the last tool call."""
    rows: list[tuple[str, str, str]] = []
    texts: list[str] = []
    error = ""
    for event in _documents(output):
        kind = event.get("type")
        if kind == "message" and event.get("role") == "assistant":
            texts.append(str(event.get("content", "")))
        elif kind == "tool_use":
            rows += [("message", "".join(texts), "")] if texts else []
            texts = []
            rows.append(("tool_call", json.dumps(event.get("parameters")), str(event.get("tool_name", ""))))
        elif kind == "tool_result":
            rows.append(("tool_result", str(event.get("output") or _message(event)), ""))
        elif "response" in event:
            texts = [str(event["response"] or "")]
        error = _message(event) if event.get("error") else error
    rows += [("message", "".join(texts), "")] if texts else []
    return Parsed(text="" if error else "".join(texts), turns=_turns(rows), error=error)


PARSERS: dict[str, Parser] = {
    "text": parse_text,
    "codex_jsonl": parse_codex_jsonl,
    "claude_json": parse_claude_json,
    "opencode_jsonl": parse_opencode_jsonl,
    "gemini_json": parse_gemini_json,
}


def _documents(output: str) -> Iterator[Mapping[str, Any]]:
    """Every JSON object that begins a line, on one line or on several; a list's objects; everything else is noise."""
    decoder, position = json.JSONDecoder(), 0
    while position < len(output):
        if output[position] in "{[":
            try:
                data, position = decoder.raw_decode(output, position)
            except ValueError:
                data = None
            yield from (each for each in (data if isinstance(data, list) else [data]) if isinstance(each, Mapping))
        line_end = output.find("\n", position)
        position = len(output) if line_end < 0 else line_end + 1


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _message(event: Mapping[str, Any]) -> str:
    """The text of an error, however deep the client keeps it."""
    error = event.get("error")
    if isinstance(error, Mapping):
        return _message({**_object(error.get("data")), **{k: v for k, v in error.items() if k != "data"}})
    return str(event.get("message") or error or event.get("name") or "no reason given")


def _turns(rows: list[tuple[str, str, str]]) -> tuple[Turn, ...]:
    return tuple(Turn(kind=kind, text=_shortened(text), name=name) for kind, text, name in rows if text)


def _shortened(text: str) -> str:
    if len(text) <= MAX_TURN_CHARS:
        return text
    half = MAX_TURN_CHARS // 2
    return f"{text[:half]}\n... {len(text) - 2 * half} characters left out ...\n{text[-half:]}"
