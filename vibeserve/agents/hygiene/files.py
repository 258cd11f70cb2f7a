"""Reading, writing and removing below a folder by relative names, never through a link that lies on the way."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vibeserve.agents.hygiene.removal import Remover
from vibeserve.agents.hygiene.rules import TRASH

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


def read_below(root: Path, name: str) -> tuple[bytes, bool]:
    """Content of a plain file, and whether its owner may execute it. OSError where it is none."""
    with _parent(root, name) as (parent, last):
        descriptor = os.open(last, _FILE, dir_fd=parent)
        try:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise OSError(errno.EISDIR, "no plain file", name)
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                return stream.read(), bool(mode & stat.S_IXUSR)
        finally:
            os.close(descriptor)


def write_below(root: Path, name: str, data: bytes, *, is_executable: bool) -> None:
    """Create or replace a file, its folders included. OSError where a link or a file stands for one of them."""
    with _parent(root, name, can_make=True) as (parent, last):
        replace_in(parent, last, data, is_executable=is_executable)


def replace_in(parent: int, name: str, data: bytes, *, is_executable: bool) -> None:
    """Create or replace the file `name` in the open folder `parent`, whole or not at all."""
    draft = TRASH + secrets.token_hex(4)
    descriptor = os.open(draft, _NEW, 0o600, dir_fd=parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            os.fchmod(stream.fileno(), 0o755 if is_executable else 0o644)
        os.replace(draft, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        os.unlink(draft, dir_fd=parent)
        raise


def remove_below(root: Path, name: str) -> None:
    """Remove a file or a link, and the folders above it that are empty then. OSError where it is not there."""
    with _parent(root, name) as (parent, last):
        os.unlink(last, dir_fd=parent)
    for depth in range(name.count("/"), 0, -1):
        folder = "/".join(name.split("/")[:depth])
        with _parent(root, folder) as (parent, last):
            try:
                os.rmdir(last, dir_fd=parent)
            except OSError:
                return  # something else is in it


def remove_tree(folder: Path) -> None:
    """Remove a folder with everything below it, however deep and whatever its permissions; nothing where it is absent.

    `shutil.rmtree` ends with RecursionError below about a thousand folders, which an agent can make.
    """
    if not folder.is_symlink() and not folder.exists():
        return
    parent = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        Remover(parent, max_entries=1 << 62).remove(parent, folder.name)
    finally:
        os.close(parent)


def copy_files(source: Path, destination: Path, *, names: Iterable[str]) -> None:
    """Copy the plain files `names` of one folder into another, with their executable bit and nothing else."""
    destination.mkdir(parents=True, exist_ok=True)
    for name in names:
        data, is_executable = read_below(source, name)
        write_below(destination, name, data, is_executable=is_executable)


@contextmanager
def _parent(root: Path, name: str, *, can_make: bool = False) -> Iterator[tuple[int, str]]:
    """The open folder that holds `name`, and the last part of it."""
    *folders, last = name.split("/")
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            if can_make:
                _make(folder, descriptor)
            inner = os.open(folder, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor, last
    finally:
        os.close(descriptor)


def _make(folder: str, parent: int) -> None:
    try:
        os.mkdir(folder, 0o755, dir_fd=parent)
    except FileExistsError:
        return
