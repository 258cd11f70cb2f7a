"""JSON Schemas of what the command line prints for programs: the events of a build, and `status --json`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import is_dataclass, replace
from pathlib import Path
from typing import Any

EVENTS_ID = "urn:vibeserve:schema:events:1"
STATUS_ID = "urn:vibeserve:schema:status:1"


def events_schema() -> dict[str, Any]:
    """One line of `vibeserve +target=NAME --json`: an event, and last the result or the error."""
    from vibeserve.build.target import RunSummary
    from vibeserve.cli.boundary import ErrorDocument, ErrorFacts
    from vibeserve.core.schemas import SchemaWriter
    from vibeserve.progress import EVENTS

    writer = SchemaWriter(notes=_notes, is_sparse=True, names={(ErrorFacts, "error_class"): "class"})
    # the last line holds the whole manifest, which has a schema of its own
    last = replace(writer, is_sparse=False, plain=frozenset({(RunSummary, "manifest")}))
    kinds = [writer.reference(cls) for cls in EVENTS] + [last.reference(cls) for cls in (RunSummary, ErrorDocument)]
    return writer.document({"oneOf": kinds}, schema_id=EVENTS_ID, title="VibeServe line of a build's --json")


def status_schema() -> dict[str, Any]:
    """The document of `vibeserve status --json`."""
    from vibeserve.core.schemas import SchemaWriter
    from vibeserve.status import StatusDocument

    writer = SchemaWriter(notes=_notes)
    return writer.document(writer.reference(StatusDocument), schema_id=STATUS_ID, title="VibeServe status")


def _notes(cls: type) -> dict[str, str]:
    """Descriptions of a class's fields, those that it inherits included."""
    from vibeserve.config.schema import field_notes

    classes = [each for each in reversed(cls.__mro__) if is_dataclass(each)]
    return {name: note for each in classes for name, note in field_notes(each).items()}


SCHEMAS: dict[str, Callable[[], dict[str, Any]]] = {"events": events_schema, "status": status_schema}


def schema_texts() -> dict[str, str]:
    """Text of each schema file by name."""
    return {f"{name}.schema.json": json.dumps(make(), indent=1) + "\n" for name, make in SCHEMAS.items()}


def write_schemas(folder: Path) -> list[Path]:
    """Write them into `folder` and return the paths."""
    from vibeserve.core.documents import write_text_atomic

    for name, text in schema_texts().items():
        write_text_atomic(folder / name, text)
    return [folder / name for name in schema_texts()]
