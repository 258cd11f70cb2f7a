"""Stamps: what a step's last run was made from and what it made, one JSON document each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vibeserve.core.documents import digest_file, digest_of, read_document, write_document
from vibeserve.errors import InfraError

_ABSENT = "absent"


@dataclass(frozen=True, kw_only=True)
class FileStamp:
    """Digest of one output file, and the facts by which an untouched file is recognised without reading it."""

    sha256: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int


@dataclass(frozen=True, kw_only=True)
class Stamp:
    """Record of a step's last successful run."""

    name: str
    key: str
    document: Any
    digest: str
    outputs: tuple[str, ...]
    files: dict[str, FileStamp]
    """every file under the outputs, by path"""
    seconds: float
    schema_version: int = 1


def make_stamp(name: str, *, key: str, document: Any, outputs: Sequence[Path], seconds: float) -> Stamp:
    """Stamp of a run that just ended; an output that is not there raises `InfraError`."""
    for output in outputs:
        if not output.exists():
            raise InfraError(f"step '{name}' did not make its output {output}")
    files = _stamp_files(outputs, known={})
    content = {path: stamp.sha256 for path, stamp in _relative(files, outputs).items()}
    digest = digest_of({"document": document, "outputs": content})
    return Stamp(
        name=name, key=key, document=document, digest=digest, outputs=tuple(str(path) for path in outputs), files=files,
        seconds=seconds,
    )  # fmt: skip


def read_stamp(path: Path) -> Stamp | None:
    """The stamp at `path`; None where there is none or it cannot be read, which only means that the step runs again."""
    from dacite import DaciteError

    try:
        return read_document(path, Stamp)
    except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError, DaciteError):
        return None


def write_stamp(path: Path, stamp: Stamp) -> None:
    write_document(path, stamp)


def what_changed(stamp: Stamp) -> str:
    """The first output that is not as the stamp records it, as a clause; empty when all are."""
    now = _stamp_files([Path(name) for name in stamp.outputs], known=stamp.files)
    for path in sorted(stamp.files.keys() | now.keys()):
        before, after = stamp.files.get(path), now.get(path)
        if after is None:
            return f"{path} is gone"
        if before is None:
            return f"{path} is new"
        if before.sha256 != after.sha256:
            return f"{path} was changed"
    return ""


def _stamp_files(outputs: Sequence[Path], *, known: dict[str, FileStamp]) -> dict[str, FileStamp]:
    stamps: dict[str, FileStamp] = {}
    for output in outputs:
        paths = (
            sorted(path for path in output.rglob("*") if "__pycache__" not in path.parts)
            if output.is_dir()
            else [output]
        )
        for path in paths:
            if path.is_file():
                stamps[str(path)] = _stamp_file(path, known.get(str(path)))
    return stamps


def _stamp_file(path: Path, known: FileStamp | None) -> FileStamp:
    facts = path.stat()
    if known and (known.size, known.mtime_ns, known.ctime_ns, known.inode) == (
        facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino,
    ):  # fmt: skip
        return known
    return FileStamp(
        sha256=digest_file(path), size=facts.st_size, mtime_ns=facts.st_mtime_ns, ctime_ns=facts.st_ctime_ns,
        inode=facts.st_ino,
    )  # fmt: skip


def _relative(files: dict[str, FileStamp], outputs: Sequence[Path]) -> dict[str, FileStamp]:
    """Keys without the place on this machine: output number and path inside it."""
    named: dict[str, FileStamp] = {}
    for number, output in enumerate(outputs):
        for path, stamp in files.items():
            if Path(path) == output or output in Path(path).parents:
                named[f"{number}:{Path(path).relative_to(output).as_posix()}"] = stamp
    return named
