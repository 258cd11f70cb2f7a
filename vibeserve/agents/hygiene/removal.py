"""Removing a hostile tree of any depth, folders without permissions in it, without following a link.

Depth costs neither recursion nor descriptors nor long paths: each subfolder is moved up beside its parent, into one
flat folder, before its content is looked at.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from vibeserve.agents.hygiene.rules import TRASH

MOUNTS = Path("/proc/self/mountinfo")
_NOT_FOLLOWED = os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | _NOT_FOLLOWED
_BATCH = 1000
_OWNER = 0o700


class TooManyEntries(Exception):
    """What is to be removed holds more entries than may be."""


def mount_points(workspace: Path) -> frozenset[str]:
    """Paths relative to `workspace` at which something is mounted; none where the kernel does not tell."""
    try:
        lines = MOUNTS.read_bytes().split(b"\n")
    except FileNotFoundError:
        return frozenset()
    root = os.fsencode(workspace.resolve()) + b"/"
    places = (_unescaped(line.split(b" ")[4]) for line in lines if line.count(b" ") >= 5)
    return frozenset(os.fsdecode(place[len(root) :]) for place in places if place.startswith(root))


def _unescaped(place: bytes) -> bytes:
    """The kernel writes space, tab, line break and backslash as three octal digits."""
    for code in (b"\\040", b"\\011", b"\\012", b"\\134"):
        place = place.replace(code, bytes([int(code[1:], 8)]))
    return place


def open_up(parent: int, name: str, *, rights: int = _OWNER) -> None:
    """Give the owner `rights` on the file or folder `name`, which is not followed where it is a link."""
    if os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode & rights == rights:
        return
    descriptor = os.open(name, os.O_PATH | _NOT_FOLLOWED, dir_fd=parent)
    try:
        mode = os.fstat(descriptor).st_mode
        # what is opened by path alone takes no fchmod; its entry in /proc does
        Path(f"/proc/self/fd/{descriptor}").chmod(stat.S_IMODE(mode) | rights)
    finally:
        os.close(descriptor)


class Remover:
    """Removes entries below the open folder `root`, `max_entries` in all."""

    def __init__(self, root: int, *, max_entries: int) -> None:
        self._root = root
        self._left = max_entries

    def remove(self, parent: int, name: str) -> None:
        """Remove `name` of the open folder `parent`, whatever it is. TooManyEntries, or OSError where that fails."""
        if not _is_folder(parent, name):
            os.unlink(name, dir_fd=parent)
            return
        with self._trash() as trash:
            self._empty(trash, parent, name)

    def _empty(self, trash: int, parent: int, name: str) -> None:
        numbers = iter(range(1 << 62))
        waiting = [self._move(parent, name, trash, next(numbers))]
        while waiting:
            current = waiting.pop()
            descriptor = os.open(current, _FOLDER, dir_fd=trash)
            try:
                while batch := _batch(descriptor):
                    self._spend(len(batch))
                    for inner in batch:
                        if _is_folder(descriptor, inner):
                            waiting.append(self._move(descriptor, inner, trash, next(numbers)))
                        else:
                            os.unlink(inner, dir_fd=descriptor)
            finally:
                os.close(descriptor)
            os.rmdir(current, dir_fd=trash)

    def _move(self, parent: int, name: str, trash: int, number: int) -> str:
        # a folder that its owner may not write cannot be moved out of its parent
        open_up(parent, name)
        os.rename(name, str(number), src_dir_fd=parent, dst_dir_fd=trash)
        return str(number)

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise TooManyEntries

    @contextmanager
    def _trash(self) -> Iterator[int]:
        name = TRASH + secrets.token_hex(4)
        os.mkdir(name, 0o700, dir_fd=self._root)
        descriptor = os.open(name, _FOLDER, dir_fd=self._root)
        try:
            yield descriptor
        finally:
            os.close(descriptor)
            # it is not empty where a removal failed half-way; the next tidying takes it for a leftover
            with suppress(OSError):
                os.rmdir(name, dir_fd=self._root)


def _batch(descriptor: int) -> list[str]:
    with os.scandir(descriptor) as entries:
        return [entry.name for entry in islice(entries, _BATCH)]


def _is_folder(parent: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
