"""Which files the tools on the controller may touch: the workspace and read-only folders, and no link out of them."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vibeserve.agents.openai_loop.toolbox import ToolError
from vibeserve.core.documents import CACHES, write_text_atomic

MAX_FILE_BYTES = 16 << 20
SKIPPED = (*CACHES, ".git")
"""folders that listings and searches do not enter"""
_SNIFF_BYTES = 8192
_MAX_WALKED = 20_000
_KINDS = (
    (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"), (stat.S_ISLNK, "a link"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Folders are real paths, as `reach_of` makes them."""

    workspace: Path
    is_writable: bool
    read_only: tuple[Path, ...] = ()

    def readable(self, text: str) -> Path:
        """The real path of what `text` names. ToolError when it lies outside."""
        real = self._real(text)
        if any(real.is_relative_to(root) for root in (self.workspace, *self.read_only)):
            return real
        raise ToolError(self._outside(text))

    def writable(self, text: str) -> Path:
        """The real path that `text` names for writing: in the workspace, a regular file or nothing yet."""
        if not self.is_writable:
            raise ToolError("the workspace is read-only in this task")
        real = self._real(text)
        if not real.is_relative_to(self.workspace) or real == self.workspace:
            raise ToolError(self._outside(text, roots=(self.workspace,)))
        if any(real.is_relative_to(root) for root in self.read_only if root.is_relative_to(self.workspace)):
            raise ToolError(f"'{text}' is read-only")
        if any(ord(character) < 32 for character in text):
            raise ToolError(f"{text!r} holds control characters, which no file name may")
        if os.path.lexists(real) and not stat.S_ISREG(real.lstat().st_mode):
            raise ToolError(f"'{text}' is {kind_of(real.lstat().st_mode)}, not a file")
        return real

    def shown(self, path: Path) -> str:
        """As the model should name it."""
        return path.relative_to(self.workspace).as_posix() if path.is_relative_to(self.workspace) else str(path)

    def read_text(self, text: str) -> str:
        """Content of a text file. ToolError for what is none, is too large, or is not there."""
        data = self._read(self.readable(text), text)
        if b"\0" in data[:_SNIFF_BYTES]:
            raise ToolError(f"'{text}' is binary ({len(data)} bytes)")
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ToolError(f"'{text}' is not UTF-8 text: {error.reason} at byte {error.start}") from error

    def write_text(self, path: Path, content: str) -> None:
        """Replace or create the file at a path of `writable`, keeping the permissions of an old one."""
        try:
            mode = stat.S_IMODE(path.stat().st_mode) & 0o755 if path.exists() else 0o644
            write_text_atomic(path, content)
            path.chmod(mode)
        except OSError as error:
            raise ToolError(f"cannot write '{self.shown(path)}': {error.strerror}") from error

    def missing(self, text: str) -> ToolError:
        """That `text` is not there, with names that look like it."""
        names = [self.shown(path) for path, _ in walk(self.workspace)]
        near = difflib.get_close_matches(text, names, n=3, cutoff=0.5)
        same = [name for name in names if Path(name).name == Path(text).name]
        told = list(dict.fromkeys([*same[:3], *near]))[:3]
        return ToolError(f"there is no '{text}'" + (f"; did you mean {', '.join(told)}?" if told else ""))

    def _real(self, text: str) -> Path:
        if not text.strip() or "\0" in text:
            raise ToolError("a path must not be empty or hold NUL")
        given = Path(text)
        if ".." in given.parts:
            raise ToolError(f"'{text}' must not hold '..'; paths are relative to the workspace")
        try:
            return (self.workspace / given).resolve()
        except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError before Python 3.13
            raise ToolError(f"'{text}' cannot be followed: {error}") from error

    def _outside(self, text: str, *, roots: tuple[Path, ...] = ()) -> str:
        allowed = roots or (self.workspace, *self.read_only)
        named = Path(os.path.normpath(self.workspace / text))
        how = "is a link that leads outside" if any(named.is_relative_to(root) for root in allowed) else "lies outside"
        return f"'{text}' {how}; paths are relative to the workspace, or absolute below {', '.join(map(str, allowed))}"

    def _read(self, path: Path, text: str) -> bytes:
        try:
            # a pipe without a writer would hold an open that blocks
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise self.missing(text) from error
        except OSError as error:
            raise ToolError(f"cannot open '{text}': {error.strerror}") from error
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise ToolError(f"'{text}' is {kind_of(found.st_mode)}, not a file")
            if found.st_size > MAX_FILE_BYTES:
                size, most = found.st_size / 2**20, MAX_FILE_BYTES >> 20
                raise ToolError(f"'{text}' has {size:.0f} MiB; at most {most} MiB are read: use run_command on a part")
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                return stream.read(MAX_FILE_BYTES)
        finally:
            os.close(descriptor)


def reach_of(workspace: Path, *, is_writable: bool, read_only: tuple[Path, ...]) -> Reach:
    """The reach of one call, by real paths; read-only folders that are not there are left out."""
    roots = tuple(path.resolve() for path in read_only if path.exists())
    return Reach(workspace=workspace.resolve(), is_writable=is_writable, read_only=roots)


def kind_of(mode: int) -> str:
    """`a folder`, `a pipe`, ... of a file's mode."""
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "a file")


def walk(root: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Everything below `root` in order of names, folders before what is in them; links are not followed. At most
    20,000 entries."""
    queue, num_seen = [root], 0
    while queue:
        folder = queue.pop()
        below: list[Path] = []
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        for entry in entries:
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            num_seen += 1
            if num_seen > _MAX_WALKED:
                return
            yield Path(entry.path), found
            if stat.S_ISDIR(found.st_mode) and entry.name not in SKIPPED:
                below.append(Path(entry.path))
        queue += reversed(below)
