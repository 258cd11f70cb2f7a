"""`SHA256SUMS`: the list of every other file of an artifact with its digest, in the format of `sha256sum -c`."""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath

from vibeserve.core.documents import digest_file

SUMS_NAME = "SHA256SUMS"
SIGNATURE_NAME = "SHA256SUMS.sig"
"""covers the list, so that the list cannot cover it"""
UNLISTED = (SUMS_NAME, SIGNATURE_NAME)
_LINE = re.compile(r"([0-9a-f]{64})  ([^\\\r\n]+)")


class SumsError(ValueError):
    """The list is malformed; the text says where."""


def render_sums(root: Path) -> str:
    """Text of the list over every plain file under `root` except the list itself and its signature."""
    lines = [f"{digest_file(root / name)}  {name}\n" for name in artifact_files(root) if name not in UNLISTED]
    return "".join(lines)


def parse_sums(text: str) -> dict[str, str]:
    """Relative path -> SHA-256. Raises `SumsError` for anything that `render_sums` does not write."""
    sums: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise SumsError(f"line {number} is not '<sha256>  <path>'")
        digest, name = match.groups()
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or path.as_posix() != name:
            raise SumsError(f"line {number} names '{name}', which is no path inside the artifact")
        if name in sums:
            raise SumsError(f"line {number} names '{name}' a second time")
        sums[name] = digest
    if not sums:
        raise SumsError("it is empty")
    return sums


def artifact_files(root: Path) -> list[str]:
    """Relative posix paths of all under `root` that is no folder, sorted. Links are listed, never followed."""
    names: list[str] = []
    for folder, folders, files in os.walk(root):
        here = Path(folder)
        links = [name for name in folders if (here / name).is_symlink()]
        names += [(here / name).relative_to(root).as_posix() for name in [*files, *links]]
    return sorted(names)
