"""The APIs that the scripted server speaks: each reads a request into `Asked` and writes an `Answer` its own way."""

from __future__ import annotations

from vibeserve.loopback.dialects.chat import Chat
from vibeserve.loopback.dialects.gemini import Gemini
from vibeserve.loopback.dialects.messages import Messages
from vibeserve.loopback.dialects.neutral import Answer, Asked, Dialect, Usage, usage_of
from vibeserve.loopback.dialects.responses import Responses

__all__ = ["Answer", "Asked", "Dialect", "Usage", "dialect_of", "usage_of"]


def dialect_of(path: str) -> Dialect | None:
    """By the path of a POST, without its query; None for a path that asks no model."""
    if path.endswith("/responses"):
        return Responses()
    if path.endswith("/chat/completions"):
        return Chat()
    if path.endswith("/messages"):
        return Messages()
    if path.endswith((":generateContent", ":streamGenerateContent")):
        return Gemini()
    return None
