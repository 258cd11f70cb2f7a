"""A disk that takes nothing: which of the operating system's errors say so, and what is told."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from vibeserve.errors import InfraError, StorageError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
TAKES_NOTHING = (*FULL, errno.EROFS)
MIN_FREE_MIB = 32
"""logs, workspaces and checkpoints of one round, several times over"""
SAID_BY_PROGRAMS = tuple(os.strerror(number) for number in TAKES_NOTHING)
"""how a child's message says it, such as git's"""


def cannot_write(path: Path, error: OSError, *, what: str = "", needed_bytes: int = 0, step: str = "") -> InfraError:
    """The error for a file that could not be written: which, why, how much was needed and is free, what to do next.

    StorageError where the disk takes nothing, whoever writes; InfraError for all else.
    """
    name = f"{what} {path}" if what else str(path)
    kind = StorageError if error.errno in TAKES_NOTHING else InfraError
    facts = free_text(path, needed_bytes=needed_bytes) if error.errno in FULL else ""
    told = f"{name} could not be written: {error.strerror or error}{facts}"
    return kind(told + (f"\nnext: {step}" if step else ""))


def refuse_full_disk(folder: Path) -> None:
    """StorageError where the disk of `folder` has no room for a round, or has become read-only: what would die of that
    says nothing."""
    found = os.statvfs(folder)
    if found.f_flag & os.ST_RDONLY:
        raise StorageError(
            f"the disk of {folder} is read-only\n"
            "next: make it writable and start the same command again; what is finished is kept"
        )
    free_mib = found.f_bavail * found.f_frsize / 2**20
    if free_mib < MIN_FREE_MIB:
        raise StorageError(
            f"the disk of {folder} is full: {free_mib:.3g} MiB are free, a round needs {MIN_FREE_MIB} MiB\n"
            "next: free the disk and start the same command again; what is finished is kept"
        )


def said_storage(text: str) -> bool:
    """A program's message says that the disk takes nothing."""
    return any(words in text for words in SAID_BY_PROGRAMS)


def free_text(path: Path, *, needed_bytes: int = 0) -> str:
    """` (120 bytes needed, 0 MiB free on its disk)`; empty where that cannot be told."""
    try:
        found = os.statvfs(existing_folder(path))
    except OSError:
        return ""
    free = found.f_bavail * found.f_frsize
    needed = f"{needed_bytes} bytes needed, " if needed_bytes else ""
    return f" ({needed}{free / 2**20:.3g} MiB free on its disk)"


def existing_folder(path: Path) -> Path:
    """The nearest folder above `path` that is there."""
    return next((each for each in path.absolute().parents if each.is_dir()), Path("/"))
