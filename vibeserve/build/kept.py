"""A certification that is measured and not stamped yet: a kill between the two must not cost it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vibeserve.core.documents import read_document


@dataclass(frozen=True, kw_only=True)
class KeptCertification:
    """Document: what the step `certify` measured, before its event is journalled and its stamp written."""

    key: str
    """of the step, when it was measured: other inputs are measured anew"""
    result: Any
    """a `Certification` as data"""
    event: Any
    """what the journal says of it"""
    schema_version: int = 1


def read_kept(path: Path, *, key: str) -> KeptCertification | None:
    """The document at `path`, replaced atomically, where it is of these very inputs."""
    if not path.is_file():
        return None
    kept = read_document(path, KeptCertification)
    return kept if kept.key == key else None
