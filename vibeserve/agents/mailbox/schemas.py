"""JSON Schemas of both sides of a mailbox, generated from the documents; the files in `docs/schemas/`."""

from __future__ import annotations

import dataclasses
import json
import typing
from pathlib import Path
from typing import Any

from vibeserve.agents.mailbox.documents import STATES, MailboxRequest, MailboxResult
from vibeserve.core.documents import write_text_atomic

DRAFT = "https://json-schema.org/draft/2020-12/schema"
SCHEMA_FILES: dict[str, type] = {"mailbox-request.json": MailboxRequest, "mailbox-result.json": MailboxResult}
_TYPES: dict[Any, dict[str, Any]] = {
    str: {"type": "string"}, int: {"type": "integer"}, bool: {"type": "boolean"}, Any: {},
    list[str]: {"type": "array", "items": {"type": "string"}}, dict[str, Any]: {"type": "object"},
}  # fmt: skip
_CHOICES: dict[str, dict[str, Any]] = {
    "state": {"enum": list(STATES)}, "schema_version": {"const": 1}, "tries": {"minimum": 1}
}  # fmt: skip


def document_schema(cls: type) -> dict[str, Any]:
    """Closed; a field with a default may be left out."""
    from vibeserve.config.schema import field_notes

    hints, notes = typing.get_type_hints(cls), field_notes(cls)
    properties, required = {}, []
    for item in dataclasses.fields(cls):
        schema = {**_TYPES[hints[item.name]], **_CHOICES.get(item.name, {})}
        properties[item.name] = {**schema, "description": notes[item.name]} if item.name in notes else schema
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING:
            required.append(item.name)
    return {
        "$schema": DRAFT, "title": f"VibeServe {cls.__name__}", "description": " ".join((cls.__doc__ or "").split()),
        "type": "object", "properties": properties, "required": required, "additionalProperties": False,
    }  # fmt: skip


def schema_texts() -> dict[str, str]:
    """Text of each schema file by name."""
    return {name: json.dumps(document_schema(cls), indent=1) + "\n" for name, cls in SCHEMA_FILES.items()}


def write_schemas(folder: Path) -> list[Path]:
    """Write both into `folder` and return the paths."""
    for name, text in schema_texts().items():
        write_text_atomic(folder / name, text)
    return [folder / name for name in schema_texts()]
