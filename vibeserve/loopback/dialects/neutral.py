"""A request and its answer without the words of an API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

CHARACTERS_PER_TOKEN = 4
REASONING_TOKENS = 8
"""of every answer, part of its output tokens"""
CREATED_S = 1_767_225_600
"""2026-01-01: an answer does not depend on the clock"""
PIECE = 256
"""characters of one delta of a stream"""

Event = tuple[str, Any]
"""(name or empty, document or text) of one server-sent event"""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """`cached` is a part of `input`, `reasoning` one of `output`."""

    input: int
    cached: int
    output: int
    reasoning: int = REASONING_TOKENS


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a request says."""

    model: str
    is_stream: bool
    prompts: tuple[str, ...]
    """messages of the user, tool results left out"""
    said: tuple[str, ...]
    """earlier messages of the model"""
    num_results: int
    """tool results in the conversation"""
    texts: tuple[str, ...]
    """everything, in its order: what is counted as input"""
    tools: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A message, or one tool call."""

    ident: str
    """in every id of the answer; not the same twice in a conversation"""
    usage: Usage
    text: str = ""
    tool: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    is_refusal: bool = False


class Dialect(Protocol):
    """One API."""

    def read(self, body: Mapping[str, Any], path: str) -> Asked: ...

    def document(self, answer: Answer, model: str) -> dict[str, Any]:
        """The whole answer as one JSON document."""
        ...

    def events(self, answer: Answer, model: str) -> list[Event]:
        """The same answer as a stream."""
        ...

    def error(self, status: int, message: str) -> dict[str, Any]: ...


def usage_of(asked: Asked, *, written: str) -> Usage:
    """By characters. What an earlier request of the conversation had sent already counts as cached."""
    counts = [len(text) for text in asked.texts]
    is_first = asked.num_results == 0 and not asked.said
    return Usage(
        input=max(1, sum(counts) // CHARACTERS_PER_TOKEN),
        cached=0 if is_first else sum(counts[:-1]) // CHARACTERS_PER_TOKEN,
        output=REASONING_TOKENS + max(1, len(written) // CHARACTERS_PER_TOKEN),
    )


def pieces(text: str) -> list[str]:
    """`text` as the deltas of a stream; one empty delta for an empty text."""
    return [text[start : start + PIECE] for start in range(0, len(text), PIECE)] or [""]


def text_of(content: object) -> str:
    """The text of a content field, which is a text or a list of typed parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, Sequence):
        return ""
    parts = [part for part in content if isinstance(part, Mapping)]
    return "\n".join(str(part["text"]) for part in parts if isinstance(part.get("text"), str))
