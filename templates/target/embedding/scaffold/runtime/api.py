"""The route: POST /v1/embeddings in the shape of OpenAI's API, for one text or a list of them."""

from __future__ import annotations

import base64
import sys
from array import array
from dataclasses import dataclass
from typing import Any

PATH = "/v1/embeddings"
EXAMPLE: dict[str, Any] = {"model": "model", "input": ["A short text.", "Another one."]}
FORMATS = ("float", "base64")


@dataclass(frozen=True, kw_only=True)
class Input:
    """What the model is given."""

    texts: list[str]
    model: str
    encoding_format: str


@dataclass(frozen=True, kw_only=True)
class Result:
    """What the model returns: one vector per text."""

    vectors: list[list[float]]
    num_tokens: int
    asked: Input


def parse(body: dict[str, Any]) -> Input:
    """The body's texts. Raises ValueError, whose text the client gets."""
    given = body.get("input")
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) and text for text in texts):
        raise ValueError("input: expected a text or a list of texts, none of them empty")
    encoding_format = body.get("encoding_format") or "float"
    if encoding_format not in FORMATS:
        raise ValueError(f"encoding_format: expected one of {', '.join(FORMATS)}")
    if body.get("dimensions") is not None:
        raise ValueError("dimensions: this model's vectors have one length")
    return Input(texts=texts, model=str(body.get("model", "")), encoding_format=encoding_format)


def render(result: Result) -> dict[str, Any]:
    """The reply's body."""
    is_packed = result.asked.encoding_format == "base64"
    data = [
        {"object": "embedding", "index": index, "embedding": _packed(vector) if is_packed else vector}
        for index, vector in enumerate(result.vectors)
    ]
    usage = {"prompt_tokens": result.num_tokens, "total_tokens": result.num_tokens}
    return {"object": "list", "data": data, "model": result.asked.model, "usage": usage}


def _packed(vector: list[float]) -> str:
    """32-bit floats, little endian."""
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return base64.b64encode(numbers.tobytes()).decode()
