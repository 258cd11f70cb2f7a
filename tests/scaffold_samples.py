"""A target's folder that brings a scaffold of its own: a model that counts letters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

API = '''"""The route: a text in, a list of counts out."""

from __future__ import annotations

from typing import Any

PATH = "/v1/letters"
EXAMPLE: dict[str, Any] = {"input": "A banana."}


def parse(body: dict[str, Any]) -> dict[str, Any]:
    """The text. Raises ValueError."""
    text = body.get("input")
    if not isinstance(text, str):
        raise ValueError("'input' must be a text")
    return {"text": text}


def render(counts: list[int]) -> dict[str, Any]:
    """One count per letter."""
    return {"counts": counts}
'''
MODEL = '''"""How often each letter of an alphabet is in a text."""

from __future__ import annotations

import json
from pathlib import Path

from .interfaces import Request


class Letters:
    """See `interfaces.ModelLike`."""

    def __init__(self, alphabet: str) -> None:
        self.alphabet = alphabet

    def run(self, request: Request) -> list[int]:
        return [request.payload["text"].lower().count(letter) for letter in self.alphabet]


def load(path: str, device: str, dtype: str) -> Letters:
    """The alphabet in `config.json`."""
    return Letters(json.loads((Path(path) / "config.json").read_text(encoding="utf-8"))["alphabet"])
'''


def write_target(folder: Path, more: Mapping[str, str] | None = None) -> Path:
    """`folder` as a target's: model/ with an alphabet, scaffold/ with api.py and model.py, and what `more` says."""
    files = {"target.yaml": "{}\n", "model/config.json": json.dumps({"alphabet": "abc"})}
    files |= {"scaffold/runtime/api.py": API, "scaffold/runtime/model.py": MODEL}
    for name, text in {**files, **(more or {})}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder
