"""Dataclass <-> JSON documents, and their atomic replacement on disk.

Every document written by VibeServe is a dataclass with a `schema_version` field.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import tempfile
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from vibeserve.errors import VersionError

T = TypeVar("T")


def to_data(value: Any) -> Any:
    """Plain JSON data of a dataclass, enum, path, tuple, mapping or scalar, recursively."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_data(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, dict):
        return {str(to_data(key)): to_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_data(item) for item in value]
    return value


def from_data(cls: type[T], data: Any) -> T:
    """Instance of dataclass `cls`; unknown keys, missing keys and wrong types raise `dacite.DaciteError`."""
    import dacite

    return dacite.from_dict(cls, data, config=dacite.Config(cast=[Enum, tuple, Path], strict=True))


def finite_data(value: Any) -> Any:
    """JSON data in which None stands for what is no finite number: documents hold no NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: finite_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite_data(item) for item in value]
    return value


def canonical_json(value: Any) -> str:
    """One byte-for-byte form per value: sorted keys, no spaces, no NaN."""
    return json.dumps(to_data(value), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest_of(value: Any) -> str:
    """SHA-256 of the canonical JSON form, in hex."""
    return sha256(canonical_json(value).encode()).hexdigest()


def digest_file(path: Path) -> str:
    """SHA-256 of a file's bytes, in hex."""
    hasher = sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            hasher.update(block)
    return hasher.hexdigest()


CACHES = ("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache")
BUILD_OUTPUT = "build"
"""of a workspace: the folder at its top that its build step fills, never shipped or digested"""


def digest_tree(root: Path, *, ignore: tuple[str, ...] = CACHES) -> dict[str, str]:
    """Relative posix path -> SHA-256 for every regular file under `root`, sorted by path.

    Names in `ignore` are skipped at any depth; in a workspace (a folder with a `service.yaml`) so is the build output
    at its top, but where `ignore` is empty. Symbolic links are recorded by their target text.
    """
    has_build_output = bool(ignore) and (root / "service.yaml").is_file()
    digests: dict[str, str] = {}
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        is_output = has_build_output and relative.parts[0] == BUILD_OUTPUT
        if is_output or any(part in ignore for part in relative.parts):
            continue
        if path.is_symlink():
            digests[relative.as_posix()] = "link:" + str(path.readlink())
        elif path.is_file():
            digests[relative.as_posix()] = digest_file(path)
    return digests


def write_text_atomic(path: Path, text: str) -> None:
    """Replace `path` by `text`: temporary file, fsync, rename. A reader never sees half a document."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp creates 0600; documents are as readable as any other file of the tree
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        if error.filename is None:
            error.filename = str(path)  # a full disk is told of by the write, which knows no name
        raise
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_document(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically."""
    write_text_atomic(path, json.dumps(to_data(value), indent=2, sort_keys=True, allow_nan=False) + "\n")


def read_document(path: Path, cls: type[T]) -> T:
    """Read the document that `write_document` wrote. VersionError for one of another `schema_version`."""
    data = json.loads(path.read_text(encoding="utf-8"))
    known = getattr(cls, "schema_version", None)
    if known is not None and isinstance(data, dict) and data.get("schema_version", known) != known:
        raise VersionError(path, found=data["schema_version"], known=known)
    return from_data(cls, data)
