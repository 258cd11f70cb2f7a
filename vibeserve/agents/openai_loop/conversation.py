"""What was said so far, whatever API carries it, and the rule by which it is kept short."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vibeserve.agents.requests import AgentUsage

CHARS_PER_TOKEN = 4
"""rule of thumb for English and code"""
NUM_KEPT_TURNS = 6
"""newest answers of the model whose tool results stay"""
TRIMMED_SHARE = 0.75
"""of the limit, down to which results are left out at once: a prefix that changed is no longer in the server's cache"""
_HINT_KEYS = ("path", "command", "name", "pattern")


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    call_id: str
    name: str
    arguments: str
    """JSON text, as the model wrote it"""


@dataclass(frozen=True, kw_only=True)
class ModelTurn:
    """One answer of the model."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    """as far as the server tells it"""
    refusal: str = ""
    is_cut: bool = False
    """the server ended it: its output limit, or its filter"""
    items: tuple[Mapping[str, Any], ...] = ()
    """what of it goes back with the next request, in the API's own form"""
    usage: AgentUsage | None = None
    """None: the server did not tell"""


@dataclass(kw_only=True)
class ToolResult:
    call: ToolCall
    turn: int
    """number of the answer that called"""
    text: str
    is_left_out: bool = False


Entry = str | ModelTurn | ToolResult
"""a text of ours, an answer of the model, a result"""


@dataclass(kw_only=True)
class Conversation:
    """Entries in order. The first is the prompt; every call of an answer has its result behind it."""

    entries: list[Entry] = field(default_factory=list)
    num_turns: int = 0

    def say(self, text: str) -> None:
        self.entries.append(text)

    def answer(self, turn: ModelTurn) -> None:
        self.entries.append(turn)
        self.num_turns += 1

    def result(self, call: ToolCall, text: str) -> None:
        self.entries.append(ToolResult(call=call, turn=self.num_turns, text=text))

    def append_to_last(self, text: str) -> None:
        """Put a note of ours behind the last entry, which is no answer of the model."""
        last = self.entries[-1]
        assert not isinstance(last, ModelTurn), "the model's own words are not ours to change"
        if isinstance(last, ToolResult):
            last.text += text
        else:
            self.entries[-1] = last + text

    def num_tokens(self, *, num_fixed_chars: int = 0) -> int:
        """Estimate of the context; `num_fixed_chars` are those of instructions and tools."""
        return (num_fixed_chars + sum(map(_num_chars, self.entries))) // CHARS_PER_TOKEN

    def trim(self, *, max_tokens: int, num_fixed_chars: int = 0) -> list[ToolResult]:
        """Leave out the oldest tool results where the estimate exceeds `max_tokens`, until it is three quarters of it;
        returns those. The prompt, the model's answers and the results of the last six of them stay."""
        excess = self.num_tokens(num_fixed_chars=num_fixed_chars) - max_tokens
        if excess <= 0:
            return []
        left_out: list[ToolResult] = []
        spare_chars = CHARS_PER_TOKEN * (excess + int((1 - TRIMMED_SHARE) * max_tokens))
        for entry in self.entries:
            if spare_chars <= 0:
                break
            if not isinstance(entry, ToolResult) or entry.is_left_out or entry.turn > self.num_turns - NUM_KEPT_TURNS:
                continue
            line = _left_out(entry)
            if len(line) < len(entry.text):
                spare_chars -= len(entry.text) - len(line)
                entry.text, entry.is_left_out = line, True
                left_out.append(entry)
        return left_out


def _num_chars(entry: Entry) -> int:
    if isinstance(entry, str):
        return len(entry)
    return len(entry.text) if isinstance(entry, ToolResult) else sum(len(str(item)) for item in entry.items)


def _left_out(result: ToolResult) -> str:
    return f"[left out: {len(result.text)} characters of {described(result.call)}; call it again if needed]"


def described(call: ToolCall) -> str:
    """`read_file runtime/x.py`: a call in a few words."""
    import json

    try:
        arguments = json.loads(call.arguments or "{}", strict=False)
    except ValueError:
        return call.name
    values = arguments if isinstance(arguments, dict) else {}
    hint = next((str(values[key]) for key in _HINT_KEYS if key in values), "")
    return f"{call.name} {hint.splitlines()[0][:80]}" if hint.strip() else call.name
