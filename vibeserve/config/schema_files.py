"""The generated schemas as the files under `docs/schemas/`."""

from __future__ import annotations

import json
from pathlib import Path

from vibeserve.config.schema import composed_schema, target_schema
from vibeserve.config.targets import GROUPS
from vibeserve.core.documents import write_text_atomic
from vibeserve.core.paths import data_dir


def schema_texts() -> dict[str, str]:
    """Text of each schema file by name. The target's knows the package's groups; `vibeserve check` adds the user's."""
    options = {group: sorted(path.stem for path in (data_dir("conf") / group).glob("*.yaml")) for group in GROUPS}
    schemas = {"target.schema.json": target_schema(options), "spec.schema.json": composed_schema()}
    return {name: json.dumps(schema, indent=1) + "\n" for name, schema in schemas.items()}


def write_schemas(folder: Path) -> list[Path]:
    """Write every schema into `folder` and return the paths."""
    for name, text in schema_texts().items():
        write_text_atomic(folder / name, text)
    return [folder / name for name in schema_texts()]
