"""What is sent to a host: folders by the digests of their files, so that nothing travels twice."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from vibeserve.core.documents import CACHES, digest_file, digest_of
from vibeserve.errors import RefusedError

EXECUTABLE = 0o100
PACKAGE = Path(__file__).resolve().parents[1]
SHIPPED = (
    "__init__.py", "errors.py", "contract.py", "schedules.py", "core", "spec", "hardware", "sandbox", "workloads",
    "modalities", "hosts", "service", "client", "weights", "remote",
)  # fmt: skip
"""of this package: what starts servers and loads them. Nothing of what judges, plans or signs"""
KEPT_BACK = ("reference", "check", "faults", "probe_", "answer")
"""beginnings of files of a modality that the controller keeps: what is right, how it is probed, how it is judged"""


@dataclass(frozen=True, kw_only=True)
class Tree:
    """Files of a folder by relative path: their SHA-256, mode (644 or 755) and place on this machine."""

    files: Mapping[str, tuple[str, int, Path]]

    @property
    def digest(self) -> str:
        return digest_of({path: [digest, mode] for path, (digest, mode, _) in self.files.items()})

    def document(self) -> dict[str, list[object]]:
        return {path: [digest, mode] for path, (digest, mode, _) in sorted(self.files.items())}


def tree_of(folder: Path, *, only: Iterable[str] = ()) -> Tree:
    """Every file below `folder` (or below its entries `only`). RefusedError for links that lead to folders: an artifact
    or a workspace has none."""
    roots = [folder / name for name in only] or [folder]
    paths = [path for root in roots for path in ([root] if root.is_file() else sorted(root.rglob("*")))]
    files: dict[str, tuple[str, int, Path]] = {}
    for path in paths:
        relative = path.relative_to(folder)
        if any(part in CACHES for part in relative.parts):
            continue
        if path.is_symlink() and path.is_dir():
            raise RefusedError(f"{path} is a link to a folder: it is not sent to a host")
        if path.is_file():
            mode = 0o755 if path.stat().st_mode & EXECUTABLE else 0o644
            files[relative.as_posix()] = (digest_file(path), mode, path)
    return Tree(files=files)


def framework_tree() -> Tree:
    """The part of this package that a host runs, as a folder that can be imported from."""
    found = tree_of(PACKAGE, only=SHIPPED)
    kept = {path: row for path, row in found.files.items() if path.endswith(".py") and not _is_kept_back(path)}
    return Tree(files={f"vibeserve/{path}": row for path, row in kept.items()})


def _is_kept_back(path: str) -> bool:
    parts = path.split("/")
    return len(parts) > 2 and parts[0] == "modalities" and parts[-1].startswith(KEPT_BACK)


def write_objects(stream: IO[bytes], trees: Iterable[Tree], *, wanted: Iterable[str]) -> int:
    """Send the objects `wanted` as a tar stream; returns the bytes of their contents."""
    places = {digest: path for tree in trees for digest, _, path in tree.files.values()}
    sent = 0
    with tarfile.open(fileobj=stream, mode="w|") as archive:
        for digest in wanted:
            info = tarfile.TarInfo(digest)
            info.size = places[digest].stat().st_size
            with places[digest].open("rb") as source:
                archive.addfile(info, source)
            sent += info.size
    stream.flush()
    return sent


def receiver_source() -> str:
    """The program that takes them there, as text."""
    return Path(__file__).with_name("receiver.py").read_text(encoding="utf-8")
