"""A JSON Schema as the providers' strict modes take it. What it leaves out is checked afterwards, by the whole schema.

Source: https://platform.openai.com/docs/guides/structured-outputs (supported schemas).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_LEFT_OUT = ("minLength", "maxLength", "default", "examples", "title", "$schema", "$id")
_TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null"}


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Without keywords that are refused; a closed set of values names its types."""
    kept = {key: _strict(key, value) for key, value in schema.items() if key not in _LEFT_OUT}
    if "enum" in kept and "type" not in kept:
        types = sorted({_TYPES[type(value)] for value in kept["enum"] if type(value) in _TYPES})
        kept["type"] = types[0] if len(types) == 1 else types
    return kept


def _strict(key: str, value: Any) -> Any:
    if key in ("properties", "$defs"):
        return {name: strict_schema(each) for name, each in value.items()}
    if key == "enum":
        return value
    if isinstance(value, Mapping):
        return strict_schema(value)
    if isinstance(value, list):
        return [strict_schema(each) if isinstance(each, Mapping) else each for each in value]
    return value
