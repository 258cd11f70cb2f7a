"""JSON Schema (draft 2020-12) of the manifest, generated from the dataclasses; `docs/schemas/manifest.schema.json`."""

from __future__ import annotations

import sys
from typing import Any

from vibeserve.core.manifest import STATUSES, BaselineValue, Calibration, Intervention, Manifest
from vibeserve.core.nouns import Refusal
from vibeserve.core.schemas import SchemaWriter
from vibeserve.errors import SpecError

SCHEMA_ID = "urn:vibeserve:schema:manifest:1"
_CLASS_FIELDS = {(Refusal, "reason_class"): "class", (BaselineValue, "baseline_class"): "class"}
_OPTIONAL = frozenset({(Refusal, "file")})
_CHOICES: dict[tuple[type, str], tuple[str, ...]] = {
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
    writer = SchemaWriter(names=_CLASS_FIELDS, choices=_CHOICES, optional=_OPTIONAL)
    return writer.document(writer.reference(Manifest), schema_id=SCHEMA_ID, title="VibeServe manifest")


def check_manifest_data(data: Any) -> None:
    """Raise `SpecError` with one line per fault when `data` does not satisfy the schema."""
    from jsonschema import Draft202012Validator

    faults = sorted(Draft202012Validator(manifest_schema()).iter_errors(data), key=lambda fault: fault.json_path)
    if faults:
        problems = [f"{fault.json_path}: {fault.message}" for fault in faults]
        raise SpecError("the manifest does not satisfy its schema", problems=problems)


def main(argv: list[str]) -> int:
    """Write the schema to the file that `argv` names."""
    from pathlib import Path

    from vibeserve.core.documents import write_document

    write_document(Path(argv[0]), manifest_schema())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
