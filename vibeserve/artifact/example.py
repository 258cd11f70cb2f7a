"""A request that an artifact's runtime answers, as a command to paste."""

from __future__ import annotations

import ast
import json
import shlex
from pathlib import Path
from typing import Any

from vibeserve.artifact.open import read_spec
from vibeserve.spec import Modality

API_FILE = Path("runtime") / "runtime" / "api.py"
"""of a custom runtime: names its route in PATH and shows a body in EXAMPLE"""


def is_openai(artifact: Path) -> bool:
    """The runtime serves the routes of OpenAI's text API."""
    return read_spec(artifact).model.modality is Modality.text


def example_lines(artifact: Path, *, url: str, model: str) -> list[str]:
    """A `curl` on the runtime's own route; where no example of it can be read, one that asks whether it is well."""
    if is_openai(artifact):
        return [_curl(f"{url}/v1/completions", {"model": model, "prompt": "The sea is", "max_tokens": 32})]
    modality = read_spec(artifact).model.modality
    if modality is Modality.image:
        return [_curl(f"{url}/v1/images/generations", {"model": model, "prompt": "the sea at night", "seed": 1})]
    if modality is Modality.speech:
        address = shlex.quote(f"{url}/v1/audio/transcriptions")
        return [f"curl {address} -F model={shlex.quote(model)} -F file=@speech.wav"]
    found = _literals(artifact / API_FILE)
    route, shown = found.get("PATH"), found.get("EXAMPLE")
    if not isinstance(route, str) or not route.startswith("/") or not isinstance(shown, dict):
        return [f"curl {url}/health"]
    named = {"model": model} if "model" in shown else {}
    return [_curl(f"{url}{route}", shown | named)]


def _curl(address: str, body: dict[str, Any]) -> str:
    return f"curl {shlex.quote(address)} -H 'content-type: application/json' -d {shlex.quote(json.dumps(body))}"


def _literals(file: Path) -> dict[str, Any]:
    """Constants at the top of a module, read and never run: the file may be a candidate's. What is none is left out."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, UnicodeDecodeError, SyntaxError, ValueError):
        return {}
    found: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign):
            targets = [node.target]
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name) and node.value is not None:
                found |= _literal(target.id, node.value)
    return found


def _literal(name: str, value: ast.expr) -> dict[str, Any]:
    try:
        return {name: json.loads(json.dumps(ast.literal_eval(value)))}
    except (ValueError, TypeError, MemoryError, RecursionError):
        return {}
