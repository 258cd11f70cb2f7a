"""What is wrong with an output, in words: the field, the fault, the valid values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vibeserve.agents.mailbox.words import TYPES, type_in_words

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

MAX_FAULTS = 12
MAX_SHOWN = 80
_BOUNDS = {
    "minLength": "is {size} characters long, at least {limit} are needed",
    "maxLength": "is {size} characters long, at most {limit} are taken",
    "minItems": "holds {size} items, at least {limit} are needed",
    "maxItems": "holds {size} items, at most {limit} are taken",
    "minimum": "{value} is below {limit}, the least that is valid",
    "maximum": "{value} is above {limit}, the most that is valid",
    "exclusiveMinimum": "{value} is not above {limit}",
    "exclusiveMaximum": "{value} is not below {limit}",
    "pattern": "{value} does not match {limit}",
}


def output_faults(output: Any, *, schema: Mapping[str, Any]) -> list[str]:
    """One line per fault of `output` under the JSON Schema; empty where it is valid."""
    from jsonschema import Draft202012Validator

    errors = sorted(Draft202012Validator(schema).iter_errors(output), key=lambda error: error.json_path)
    told = [f"{_where(path)}: {what}" for error in errors for path, what in _told(error, ())]
    left_out = len(told) - MAX_FAULTS
    return [*told[:MAX_FAULTS], f"and {left_out} more"] if left_out > 0 else told


def _told(error: ValidationError, above: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    path = (*above, *error.relative_path)
    limit: Any = error.validator_value
    instance: Any = error.instance
    schema: Any = error.schema
    if error.validator in ("anyOf", "oneOf") and error.context:
        for cause in _meant(error.context, instance):
            yield from _told(cause, path)
    elif error.validator == "required":
        absent = [name for name in limit if name not in instance and error.message.startswith(repr(name))]
        yield from (((*path, name), f"is missing; needed: {_field(schema, name)}") for name in absent)
    elif error.validator == "additionalProperties":
        valid = ", ".join(schema.get("properties", {})) or "none"
        yield from (
            ((*path, name), f"is no field here; valid: {valid}")
            for name in instance
            if name not in schema.get("properties", {})
        )
    else:
        yield path, _wording(str(error.validator), limit, instance) or _shortened(error.message, 2 * MAX_SHOWN)


def _meant(causes: Sequence[ValidationError], instance: Any) -> list[ValidationError]:
    """Of several shapes, the one that was meant: the first that has the value's type, else the first."""
    branches: dict[Any, list[ValidationError]] = {}
    for cause in causes:
        branches.setdefault(cause.relative_schema_path[0], []).append(cause)
    typed = [branch for branch in branches.values() if not any(_is_type_of(cause, instance) for cause in branch)]
    return (typed or list(branches.values()))[0]


def _is_type_of(cause: ValidationError, instance: Any) -> bool:
    return cause.validator == "type" and not cause.relative_path


def _wording(kind: str, limit: Any, instance: Any) -> str:
    if kind == "enum":
        return f"{shown(instance)} is not valid; valid: {', '.join(map(_plain, limit))}"
    if kind == "const":
        return f"{shown(instance)} is not valid; valid: {_plain(limit)}"
    if kind == "type":
        types = [limit] if isinstance(limit, str) else limit
        return f"expected {' or '.join(TYPES.get(name, name) for name in types)}, got {shown(instance)}"
    if kind in _BOUNDS:
        size = len(instance) if isinstance(instance, str | list) else 0
        return _BOUNDS[kind].format(size=size, limit=limit, value=shown(instance))
    return ""


def _field(schema: Mapping[str, Any], name: str) -> str:
    return type_in_words(schema.get("properties", {}).get(name, {}))


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def shown(value: Any) -> str:
    """A value as JSON, shortened."""
    return _shortened(json.dumps(value, ensure_ascii=True), MAX_SHOWN)


def _shortened(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else f"{text[: max_chars - 3]}..."


def _where(path: Sequence[str | int]) -> str:
    """`proposal.components[0]`; the document itself is `output`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "output"
