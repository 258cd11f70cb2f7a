"""A JSON Schema in words, for someone who has to write the document by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

INDENT = "  "
TYPES = {
    "object": "an object", "array": "a list", "string": "text", "number": "a number", "integer": "a whole number",
    "boolean": "true or false", "null": "null",
}  # fmt: skip
_RANGES = (("minLength", "maxLength", "characters"), ("minItems", "maxItems", "items"), ("minimum", "maximum", ""))
_BOUNDS = {"exclusiveMinimum": "above {}", "exclusiveMaximum": "below {}", "pattern": "matching {}"}
_KNOWN = {
    "type", "enum", "const", "properties", "required", "additionalProperties", "items", "anyOf", "oneOf", "description",
    "title", "default", "$schema", "$id", *_BOUNDS, *(key for low, high, _ in _RANGES for key in (low, high)),
}  # fmt: skip
"""keywords that the words cover; any other is shown as it stands"""


def schema_in_words(schema: Mapping[str, Any]) -> list[str]:
    """Lines: the kind of document, and each of its fields with its type, bounds, valid values and description."""
    return [type_in_words(schema), *_inner(schema, depth=1)]


def type_in_words(schema: Mapping[str, Any]) -> str:
    """One line: what a value of this schema is, without the fields below it."""
    shapes = schema.get("anyOf") or schema.get("oneOf")
    if shapes:
        told = " or ".join(type_in_words(shape) for shape in shapes)
    elif "const" in schema or "enum" in schema:
        valid = [schema["const"]] if "const" in schema else schema["enum"]
        told = f"one of {', '.join(json.dumps(value) for value in valid)}"
    else:
        types = schema.get("type", [])
        names = [types] if isinstance(types, str) else types
        told = " or ".join(TYPES.get(name, str(name)) for name in names) or "anything"
    return ", ".join([told, *_bounds(schema)])


def _bounds(schema: Mapping[str, Any]) -> Iterator[str]:
    for low, high, unit in _RANGES:
        least, most = schema.get(low), schema.get(high)
        if unit and not least:
            least = None  # at least no characters is no bound
        if least is not None and most is not None:
            yield f"{least:g} to {most:g} {unit}".rstrip()
        elif least is not None or most is not None:
            yield (f"at least {least:g} {unit}" if most is None else f"at most {most:g} {unit}").rstrip()
    yield from (text.format(schema[key]) for key, text in _BOUNDS.items() if key in schema)
    yield from (f"{key} {json.dumps(value)}" for key, value in schema.items() if key not in _KNOWN)


def _inner(schema: Mapping[str, Any], *, depth: int) -> Iterator[str]:
    """Fields and items below a value, indented."""
    pad = INDENT * depth
    for shape in (*(schema.get("anyOf") or ()), *(schema.get("oneOf") or ())):
        if shape.get("properties") or shape.get("items"):
            yield f"{pad}where it is {type_in_words(shape)}:"
            yield from _inner(shape, depth=depth + 1)
    required = schema.get("required", ())
    for name, inner in schema.get("properties", {}).items():
        is_optional = "" if name in required else " (may be left out)"
        about = f": {inner['description']}" if inner.get("description") else ""
        yield f"{pad}{name}{is_optional} = {type_in_words(inner)}{about}"
        yield from _inner(inner, depth=depth + 1)
    items = schema.get("items")
    if isinstance(items, Mapping) and items:
        yield f"{pad}each item = {type_in_words(items)}"
        yield from _inner(items, depth=depth + 1)
    if schema.get("properties") and schema.get("additionalProperties") is False:
        yield f"{pad}no other fields"
