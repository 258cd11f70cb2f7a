"""JSON Schema (draft 2020-12) of the manifest, generated from the dataclasses; `docs/schemas/manifest.schema.json`."""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from enum import Enum
from typing import Any

from vibeserve.core.manifest import STATUSES, BaselineValue, Calibration, Intervention, Manifest
from vibeserve.core.nouns import Refusal
from vibeserve.errors import SpecError

SCHEMA_ID = "urn:vibeserve:schema:manifest:1"
_SCALARS: dict[type, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}
_CLASS_FIELDS = {(Refusal, "reason_class"), (BaselineValue, "baseline_class")}
_OPTIONAL = {(Refusal, "file")}
_CHOICES = {
    (Manifest, "status"): STATUSES,
    (Manifest, "level"): ("quick", "standard", "full"),
    (BaselineValue, "baseline_class"): ("naive", "competent"),
    (BaselineValue, "precision"): ("same_bytes", "any"),
    (BaselineValue, "state"): ("measured", "screened", "skipped"),
    (Calibration, "judgement"): ("too few", "no bias seen", "forecasts too high", "forecasts too low"),
    (Intervention, "state"): ("applied", "refused"),
}


def manifest_schema() -> dict[str, Any]:
    """The schema as JSON data: nothing beyond the declared fields, all but a reason's `file` required."""
    definitions: dict[str, Any] = {}
    root = _reference(Manifest, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        "title": "VibeServe manifest",
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def check_manifest_data(data: Any) -> None:
    """Raise `SpecError` with one line per fault when `data` does not satisfy the schema."""
    from jsonschema import Draft202012Validator

    faults = sorted(Draft202012Validator(manifest_schema()).iter_errors(data), key=lambda fault: fault.json_path)
    if faults:
        problems = [f"{fault.json_path}: {fault.message}" for fault in faults]
        raise SpecError("the manifest does not satisfy its schema", problems=problems)


def _reference(cls: type, definitions: dict[str, Any]) -> dict[str, Any]:
    if cls.__name__ not in definitions:
        definitions[cls.__name__] = {}
        definitions[cls.__name__] = _object(cls, definitions)
    return {"$ref": f"#/$defs/{cls.__name__}"}


def _object(cls: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(cls)
    properties: dict[str, Any] = {}
    for item in dataclasses.fields(cls):
        key = "class" if (cls, item.name) in _CLASS_FIELDS else item.name
        choices = _CHOICES.get((cls, item.name))
        properties[key] = {"enum": list(choices)} if choices else _schema(hints[item.name], definitions)
    if "schema_version" in properties:
        properties["schema_version"] = {"const": 1}
    required = sorted(key for key in properties if (cls, key) not in _OPTIONAL)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _schema(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return {}
    if hint is type(None):
        return {"type": "null"}
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [_schema(argument, definitions) for argument in arguments]}
    if origin is tuple:
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _reference(hint, definitions)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return {"enum": [member.value for member in hint]}
    return {"type": _SCALARS[hint]}


def main(argv: list[str]) -> int:
    """Write the schema to the file that `argv` names."""
    from pathlib import Path

    from vibeserve.core.documents import write_document

    write_document(Path(argv[0]), manifest_schema())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
