"""Words for what a JSON Schema validator found: jsonschema's own name neither unit nor suggestion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from vibeserve.config.targets import GROUPS
from vibeserve.config.units import advice, expected_in
from vibeserve.config.words import suggest, unknown

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

KeyPath = tuple[str | int, ...]
Told = tuple[KeyPath, str]
"""(path to the value at fault, what is wrong)"""

TYPES = {
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "boolean": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "nothing",
}
MAX_SHOWN = 60
"""characters of a wrong value that are repeated"""


def schema_faults(data: Any, schema: dict[str, Any], *, name: str = "") -> Iterator[Told]:
    """Every fault of `data` under `schema`, with the path to it. `name` is the field that `data` is the value of."""
    is_told: set[KeyPath] = set()
    for error in _validator_class()(schema).iter_errors(data):
        for path, what in _told(error, tuple(error.absolute_path), name=name):
            # a value of a wrong type may lie out of bounds too: one fault is enough
            if path not in is_told:
                yield path, what
            is_told.add(path)


@cache
def _validator_class() -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    # JSON Schema takes 3.0 for an integer, OmegaConf does not
    checker = Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    )
    return extend(Draft202012Validator, type_checker=checker)  # type: ignore[no-untyped-call]


def _told(error: ValidationError, path: KeyPath, *, name: str) -> Iterator[Told]:
    """`anyOf` is "this, or an interpolation" or "one, or a list": only the shape that was meant is explained."""
    schema: Any = error.schema
    if error.validator == "anyOf":
        meant = _meant_branch(error)
        for cause in [cause for cause in error.context or [] if cause.relative_schema_path[0] == meant]:
            yield from _told(cause, path + tuple(cause.relative_path), name=name)
    elif error.validator == "additionalProperties":
        instance: Any = error.instance
        for key in [key for key in instance if key not in schema["properties"]]:
            yield (*path, key), unknown("key", str(key), schema["properties"])
    else:
        yield path, _wording(error, path, field=name)


def _meant_branch(error: ValidationError) -> int:
    if isinstance(error.instance, list):
        shapes: Any = error.validator_value
        branches = [shape.get("type") for shape in shapes]
        return branches.index("array") if "array" in branches else 0
    return 0


def _wording(error: ValidationError, path: KeyPath, *, field: str) -> str:
    value: Any = error.validator_value
    name = next((part for part in reversed(path) if isinstance(part, str)), field)
    if error.validator == "enum":
        options = [str(option) for option in value]
        guess = suggest(str(error.instance), options)
        if error.instance is False and "off" in options:
            guess = "; YAML reads off as false: write 'off';"
        return f"{_short(error.instance)} is not valid{guess}{' ' if guess else '; '}valid: {', '.join(options)}"
    if error.validator == "minimum":
        return f"{_short(error.instance)} is below {value}"
    if error.validator == "maximum":
        return f"{_short(error.instance)} is above {value}, the most that is accepted"
    if error.validator == "type":
        return _wrong_type(str(value), error.instance, name=name, is_group=len(path) == 1 and name in GROUPS)
    return str(error.message)


def _wrong_type(wanted: str, value: Any, *, name: str, is_group: bool) -> str:
    if value is None:
        return f"expected {TYPES[wanted]}{expected_in(name)}, the value is empty; leave the key out for its default"
    told = f"expected {TYPES[wanted]}"
    if wanted in ("integer", "number"):
        return f"{told}{expected_in(name)}, got {_short(value)}{advice(name, value)}"
    if wanted == "string" and isinstance(value, bool | int | float):
        kind = "" if isinstance(value, bool) else "the number "
        return f"{told}, got {kind}{_short(value)}; quote it"
    if is_group and isinstance(value, str):
        return f"{told}, got {_short(value)}; an option is selected under defaults: - override /{name}: {value}"
    return f"{told}, got {_short(value)}"


def _short(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."


def where(path: Sequence[str | int]) -> str:
    """`goals[0].min_ratio` of a path; empty for the document itself."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).removeprefix(".")
