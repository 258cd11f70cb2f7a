"""`manifest.json`: the mapping between `core.manifest` and JSON, whose one difference is the key `class`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vibeserve.core.documents import from_data, to_data, write_document
from vibeserve.core.manifest import Manifest
from vibeserve.errors import SpecError

_CLASS_FIELDS = ("reason_class", "baseline_class")


def to_json_data(value: Any) -> Any:
    """JSON data of a manifest or a part of it.

    `reason_class` and `baseline_class` are written as `class`; a reason's `file` only where there is one.
    """
    return _rename(to_data(value))


def manifest_from_data(data: dict[str, Any]) -> Manifest:
    """Manifest of the JSON data; wrong or missing keys raise `dacite.DaciteError`."""
    return from_data(Manifest, _restore(data, parent=""))


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write `manifest.json`, checked against its schema."""
    from vibeserve.artifact.schema import check_manifest_data

    data = to_json_data(manifest)
    check_manifest_data(data)
    write_document(path, data)


def read_manifest(artifact: Path) -> Manifest:
    """The manifest of the artifact in folder `artifact`.

    Raises `SpecError` when the folder is no artifact, or its manifest cannot be read by this version.
    """
    from dacite import DaciteError

    path = artifact / "manifest.json"
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        _refuse_other_version(path, data.get("schema_version"))
        return manifest_from_data(data)
    except (FileNotFoundError, NotADirectoryError):
        raise SpecError(
            f"{artifact} is no artifact: it has no manifest.json",
            hint="name a folder such as artifacts/<target>/latest",
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError, DaciteError, AttributeError, TypeError) as error:
        raise SpecError(f"{path} cannot be read as a manifest: {error}") from error


def _refuse_other_version(path: Path, version: Any) -> None:
    if version != Manifest.schema_version:
        raise SpecError(
            f"{path} has schema_version {version}; this version of VibeServe reads {Manifest.schema_version}",
            hint="use the version that wrote it: its manifest names it under provenance",
        )


def _rename(data: Any) -> Any:
    if isinstance(data, dict):
        kept = {key: item for key, item in data.items() if not (key == "file" and item is None)}
        return {"class" if key in _CLASS_FIELDS else key: _rename(item) for key, item in kept.items()}
    if isinstance(data, list):
        return [_rename(item) for item in data]
    return data


def _restore(data: Any, *, parent: str) -> Any:
    """`class` back to the field's name, which the list that holds the object tells: baselines or reasons."""
    if isinstance(data, dict):
        name = "baseline_class" if parent == "baselines" else "reason_class"
        return {name if key == "class" else key: _restore(item, parent=key) for key, item in data.items()}
    if isinstance(data, list):
        return [_restore(item, parent=parent) for item in data]
    return data
