"""The route: POST /v1/features with a text, back comes a list of numbers. Name yours and parse what it takes."""

from __future__ import annotations

from typing import Any

PATH = "/v1/features"
EXAMPLE: dict[str, Any] = {"input": "A short text."}


def parse(body: dict[str, Any]) -> str:
    """The text. Raises ValueError, whose text the client gets with a 400."""
    text = body.get("input")
    if not isinstance(text, str) or not text:
        raise ValueError("input: expected a text that is not empty")
    return text


def render(features: list[float]) -> dict[str, Any]:
    """The reply's body."""
    return {"object": "features", "features": features}
