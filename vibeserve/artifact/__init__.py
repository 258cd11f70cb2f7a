"""The artifact: what a run leaves, how it is packaged, read, verified and served."""

from __future__ import annotations

from vibeserve.artifact.integrity import verify_bytes
from vibeserve.artifact.manifest import manifest_from_data, read_manifest, to_json_data, write_manifest
from vibeserve.artifact.open import read_golden, read_spec, resolve_artifact, unpack_runtime
from vibeserve.artifact.pack import Contents, Packaged, package

__all__ = [
    "Contents",
    "Packaged",
    "manifest_from_data",
    "package",
    "read_golden",
    "read_manifest",
    "read_spec",
    "resolve_artifact",
    "to_json_data",
    "unpack_runtime",
    "verify_bytes",
    "write_manifest",
]
