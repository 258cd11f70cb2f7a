"""What differs between two trees, by name and by lines."""

from __future__ import annotations

import stat
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from vibeserve.core.documents import digest_tree


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Relative names, sorted, and lines. A file whose executable bit alone differs is changed, too."""

    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    num_added_lines: int = 0
    """lines that are in a file now more often than before; a line that only moved within its file counts nowhere"""
    num_deleted_lines: int = 0

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.changed or self.deleted)

    def __str__(self) -> str:
        counts = (("added", self.added), ("changed", self.changed), ("deleted", self.deleted))
        files = ", ".join(f"{len(names)} {word}" for word, names in counts if names) or "none"
        return f"files: {files}; lines: +{self.num_added_lines} -{self.num_deleted_lines}"


def changed_files(before: Path, after: Path) -> Changes:
    """Compare two trees as `digest_tree` sees them: without caches and build output, links by their text."""
    old, new = digest_tree(before), digest_tree(after)
    added = sorted(set(new) - set(old))
    deleted = sorted(set(old) - set(new))
    common = sorted(set(old) & set(new))
    changed = [name for name in common if old[name] != new[name] or _bits(before / name) != _bits(after / name)]
    num_added, num_deleted = 0, 0
    for name in [*added, *changed, *deleted]:
        had, has = _lines(before / name), _lines(after / name)
        num_added += (has - had).total()
        num_deleted += (had - has).total()
    return Changes(
        added=tuple(added), changed=tuple(changed), deleted=tuple(deleted), num_added_lines=num_added,
        num_deleted_lines=num_deleted,
    )  # fmt: skip


def _bits(path: Path) -> bool:
    """The owner's executable bit, the one that a checkpoint keeps."""
    mode = path.lstat().st_mode
    return stat.S_ISREG(mode) and bool(mode & stat.S_IXUSR)


def _lines(path: Path) -> Counter[str]:
    if path.is_symlink() or not path.is_file():
        return Counter()
    return Counter(path.read_text(encoding="utf-8", errors="replace").splitlines())
