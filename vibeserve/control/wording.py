"""What is wrong with a request, in the words of who typed it: nobody wrote a JSON document."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

KINDS = {
    "integer": "a whole number", "number": "a number", "string": "text", "boolean": "true or false", "array": "a list",
    "object": "a mapping",
}  # fmt: skip
MAX_FAULTS, MAX_SHOWN = 5, 60


def value_problem(command: str, arguments: Mapping[str, Any], *, schema: Mapping[str, Any]) -> str:
    """`budget rounds: expected a whole number, got 'many'`; empty where every value is valid."""
    from jsonschema import Draft202012Validator

    found = Draft202012Validator(schema).iter_errors(arguments)
    errors = sorted(found, key=lambda each: (len(each.path), each.message))
    return "; ".join(f"{command} {_told(error)}" for error in errors[:MAX_FAULTS])


def _told(error: Any) -> str:
    key = ".".join(map(str, error.absolute_path))
    make = TEXTS.get(error.validator)
    if error.validator == "required":
        names = ", ".join(name for name in error.validator_value if name not in error.instance)
        return f"{key} needs {names}".strip()
    if error.validator == "additionalProperties":
        known = error.schema.get("properties", {})
        unknown = ", ".join(repr(name) for name in error.instance if name not in known)
        return f"{key} does not know {unknown}; valid: {', '.join(known)}".strip()
    told = make(error.validator_value, error.instance) if make is not None else error.message[:MAX_SHOWN]
    return f"{key}: {told}" if key else told


def _type(valid: Any, given: Any) -> str:
    names = [valid] if isinstance(valid, str) else list(valid)
    return f"expected {' or '.join(KINDS.get(name, name) for name in names)}, got {_shown(given)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 4]} ..."


def _nothing(valid: Any, given: Any) -> str:
    return "names nothing"


TEXTS: dict[str, Callable[[Any, Any], str]] = {
    "type": _type,
    "enum": lambda valid, given: f"{_shown(given)} is not valid; valid: {', '.join(map(str, valid))}",
    "minimum": lambda valid, given: f"{_shown(given)} is below {valid:g}",
    "minItems": _nothing,
    "minProperties": _nothing,
    "minLength": _nothing,
}
"""by the rule that was broken: (what it asks for, what was given) -> words"""
