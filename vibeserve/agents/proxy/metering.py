"""How many tokens an answer took: as it says itself, else by its characters.

Every dialect counts in its own way; `AgentUsage` is OpenAI's: cached tokens are a part of the input, reasoning tokens
one of the output. Anthropic's `input_tokens` leaves out what was read from its cache and what was written to it; both
are added here. (It charges 1.25 to 2 times the input price for what is written; the price table knows one input price.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vibeserve.agents.proxy.dialects import CHAT, GEMINI, MESSAGES, RESPONSES
from vibeserve.agents.proxy.sse import EventReader, parse_json
from vibeserve.agents.requests import AgentUsage

CHARS_PER_TOKEN = 4
"""of English and code, about; OpenAI's rule of thumb (help.openai.com, "What are tokens and how to count them?")"""
MAX_BODY_BYTES = 64 << 20
"""an answer in one piece that is longer is passed on and counted by its length"""
_NO_TEXT = ("id", "type", "object", "role", "status", "call_id", "finish_reason", "finishReason", "model", "index")
_ENDS = ("response.failed", "response.incomplete", "response.completed")


@dataclass(frozen=True, kw_only=True)
class Metered:
    """What one answer took."""

    usage: AgentUsage
    is_estimate: bool
    model: str
    """as the answer names it; may be empty"""
    error: Mapping[str, Any] | None
    """an error told in an answer with status 200"""
    num_output_chars: int


class Meter:
    """Reads one answer while it is passed on."""

    def __init__(self, dialect: str, *, is_stream: bool) -> None:
        self._dialect = dialect
        self._events = EventReader() if is_stream else None
        self._body = bytearray()
        self._num_bytes = 0
        self._usage: dict[str, Any] = {}
        self._is_final = False
        self._model = ""
        self._error: Mapping[str, Any] | None = None
        self._num_delta_chars = 0
        self._num_whole_chars = 0

    def feed(self, chunk: bytes) -> None:
        self._num_bytes += len(chunk)
        if self._events is not None:
            for event in self._events.feed(chunk):
                self._take(event)
        elif self._num_bytes <= MAX_BODY_BYTES:
            self._body += chunk
        else:
            self._body.clear()

    @property
    def is_final(self) -> bool:
        """It has told its whole usage."""
        return self._is_final

    def finish(self, *, num_request_chars: int) -> Metered:
        """The account of an answer that has told its usage, or has ended."""
        if not self._is_final:
            self._take_rest()
        usage = usage_of(self._dialect, self._usage)
        num_chars = max(self._num_delta_chars, self._num_whole_chars)
        if usage is not None and self._is_final:
            is_estimate = False
        else:
            is_estimate = True
            usage = _estimate(usage, num_request_chars=num_request_chars, num_output_chars=num_chars)
        return Metered(
            usage=usage, is_estimate=is_estimate, model=self._model, error=self._error, num_output_chars=num_chars
        )

    def _take_rest(self) -> None:
        if self._events is not None:
            for event in self._events.finish():
                self._take(event)
            return
        document = parse_json(bytes(self._body))
        for part in document if isinstance(document, list) else [document]:
            self._take(part)
        if document is None:
            self._num_whole_chars = self._num_bytes

    def _take(self, document: Any) -> None:
        """One event, or a whole answer."""
        if not isinstance(document, dict):
            return
        if isinstance(document.get("error"), Mapping):
            self._error = document["error"]
        elif document.get("type") == "error":
            self._error = document
        _READERS[self._dialect](self, document)

    def _tell(self, usage: Any, *, is_final: bool) -> None:
        if isinstance(usage, Mapping):
            self._usage |= {name: value for name, value in usage.items() if value is not None}
            self._is_final = self._is_final or is_final

    def _name(self, holder: Any, name: str = "model") -> None:
        if isinstance(holder, Mapping) and isinstance(holder.get(name), str):
            self._model = holder[name]

    def _responses(self, document: dict[str, Any]) -> None:
        kind = str(document.get("type", ""))
        answer = document.get("response") if kind.startswith("response.") else document
        if kind.endswith(".delta"):
            self._num_delta_chars += num_chars(document.get("delta"))
        elif kind == "response.output_item.done":
            self._num_whole_chars += num_chars(document.get("item"))
        if not isinstance(answer, dict):
            return
        self._name(answer)
        if isinstance(answer.get("error"), Mapping):
            self._error = answer["error"]
        if kind in _ENDS or not kind:
            self._tell(answer.get("usage"), is_final=True)
            self._num_whole_chars = max(self._num_whole_chars, num_chars(answer.get("output")))

    def _chat(self, document: dict[str, Any]) -> None:
        self._name(document)
        choices = list(_mappings(document.get("choices")))
        # some servers tell the usage so far in every event
        is_final = not choices or any(choice.get("finish_reason") or "message" in choice for choice in choices)
        self._tell(document.get("usage"), is_final=is_final)
        for choice in choices:
            self._num_delta_chars += num_chars(choice.get("delta")) + num_chars(choice.get("message"))

    def _messages(self, document: dict[str, Any]) -> None:
        kind = document.get("type")
        if kind == "message_start":
            self._name(document.get("message"))
            message = document.get("message")
            self._tell(message.get("usage") if isinstance(message, dict) else None, is_final=False)
        elif kind == "message_delta":
            self._tell(document.get("usage"), is_final=True)
        elif kind == "message":
            self._name(document)
            self._tell(document.get("usage"), is_final=True)
            self._num_whole_chars = num_chars(document.get("content"))
        else:
            self._num_delta_chars += num_chars(document.get("delta")) + num_chars(document.get("content_block"))

    def _gemini(self, document: dict[str, Any]) -> None:
        self._name(document, "modelVersion")
        candidates = list(_mappings(document.get("candidates")))
        # every event tells the usage so far; the last one says why the answer ended
        is_final = "promptFeedback" in document or any(candidate.get("finishReason") for candidate in candidates)
        self._tell(document.get("usageMetadata"), is_final=is_final)
        self._num_delta_chars += sum(num_chars(candidate.get("content")) for candidate in candidates)


_READERS = {
    RESPONSES: Meter._responses,
    CHAT: Meter._chat,
    MESSAGES: Meter._messages,
    GEMINI: Meter._gemini,
}


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    return (item for item in value if isinstance(item, Mapping)) if isinstance(value, list) else iter(())


def num_chars(value: Any) -> int:
    """Characters of all text in a document, names of kinds left out."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(num_chars(item) for name, item in value.items() if name not in _NO_TEXT)
    if isinstance(value, list):
        return sum(num_chars(item) for item in value)
    return 0


def _count(usage: Mapping[str, Any], *path: str) -> int:
    value: Any = usage
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return max(0, int(value)) if is_number else 0


def usage_of(dialect: str, told: Mapping[str, Any]) -> AgentUsage | None:
    """The `usage` of an answer as `AgentUsage`; None where it tells none."""
    if dialect == RESPONSES:
        counts = _openai(told, "input_tokens", "output_tokens")
    elif dialect == CHAT:
        counts = _openai(told, "prompt_tokens", "completion_tokens")
    elif dialect == MESSAGES:
        cached = _count(told, "cache_read_input_tokens")
        fresh = _count(told, "input_tokens") + _count(told, "cache_creation_input_tokens")
        counts = (fresh + cached, cached, _count(told, "output_tokens"), 0)
    else:
        thoughts = _count(told, "thoughtsTokenCount")
        read = _count(told, "promptTokenCount") + _count(told, "toolUsePromptTokenCount")
        counts = (
            read, _count(told, "cachedContentTokenCount"), _count(told, "candidatesTokenCount") + thoughts, thoughts
        )  # fmt: skip
    if not any(counts):
        return None
    return AgentUsage(
        input_tokens=counts[0], cached_input_tokens=min(counts[1], counts[0]), output_tokens=counts[2],
        reasoning_tokens=min(counts[3], counts[2]), num_requests=1,
    )  # fmt: skip


def _openai(told: Mapping[str, Any], read: str, written: str) -> tuple[int, int, int, int]:
    return (
        _count(told, read),
        _count(told, f"{read}_details", "cached_tokens"),
        _count(told, written),
        _count(told, f"{written}_details", "reasoning_tokens"),
    )


def _estimate(told: AgentUsage | None, *, num_request_chars: int, num_output_chars: int) -> AgentUsage:
    """By characters; what was told before the answer broke off holds for the input, and at least for the output."""
    known = told or AgentUsage()
    return AgentUsage(
        input_tokens=known.input_tokens or -(-num_request_chars // CHARS_PER_TOKEN),
        cached_input_tokens=known.cached_input_tokens,
        output_tokens=max(known.output_tokens, -(-num_output_chars // CHARS_PER_TOKEN)),
        reasoning_tokens=known.reasoning_tokens,
        num_requests=1,
    )
