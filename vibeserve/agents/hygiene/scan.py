"""The walk over a workspace that an agent has edited. It goes by open folders and never through a link."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from vibeserve.agents.hygiene import rules
from vibeserve.agents.hygiene.entry import Refused, kind_of, opened, refuse_link, refuse_size, strip_properties
from vibeserve.agents.hygiene.files import replace_in
from vibeserve.agents.hygiene.removal import Remover, TooManyEntries, mount_points, open_up
from vibeserve.core.nouns import Refusal

_CLOSED = (errno.EACCES, errno.EPERM, errno.EBUSY, errno.ELOOP, errno.ENXIO, errno.ENOENT, errno.ENODEV, errno.ENOTDIR)
"""errors that say something about the entry; all others are the machine's"""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, kw_only=True)
class Stripped:
    """One thing that was taken away: a leftover with all that is in it, or a property of what stays."""

    file: str
    what: str


@dataclass(frozen=True, kw_only=True)
class Tidied:
    """What `tidy_workspace` did and found."""

    stripped: tuple[Stripped, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    """of gate `workspace`; at most 20 of a class"""
    num_refused: int = 0
    """with those that `refusals` leaves out"""
    files: dict[str, str] = field(default_factory=dict)
    """relative path -> SHA-256 of every file that stays and is not refused"""


def tidy_workspace(workspace: Path, *, before: Mapping[str, str]) -> Tidied:
    """Strip what tools leave behind from `workspace` and refuse what no candidate may hold.

    `before` is `digest_tree` of the workspace before the agent came: what is in it and unchanged is neither stripped
    nor refused, but for mode bits and extended attributes. Time is bounded by the limits of
    `vibeserve.agents.hygiene.rules`, whatever the tree is. OSError for what the machine, not the tree, fails in.
    """
    return _run(workspace, before=before, is_dry=False)


def inspect_workspace(workspace: Path, *, before: Mapping[str, str]) -> Tidied:
    """What `tidy_workspace` would say, and nothing is changed: `stripped` is what would go."""
    return _run(workspace, before=before, is_dry=True)


def _run(workspace: Path, *, before: Mapping[str, str], is_dry: bool) -> Tidied:
    mode = stat.S_IMODE(workspace.stat().st_mode)
    if not is_dry and mode & 0o700 != 0o700:
        workspace.chmod(mode | 0o700)
    descriptor = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        scan = _Scan(descriptor, before=before, mounts=mount_points(workspace), is_dry=is_dry)
        return scan.run()
    finally:
        os.close(descriptor)


class _Over(Exception):
    """There is more than is looked at."""


class _Scan:
    def __init__(self, root: int, *, before: Mapping[str, str], mounts: frozenset[str], is_dry: bool) -> None:
        self._root = root
        self._before = before
        self._known_folders = rules.folders_of(before)
        self._mounts = mounts
        self._above_mounts = rules.folders_of(mounts) | mounts
        self._is_dry = is_dry
        self._remover = Remover(root, max_entries=rules.MAX_STRIPPED_ENTRIES)
        self._stripped: list[Stripped] = []
        self._refusals: list[Refusal] = []
        self._counts: dict[str, int] = {}
        self._files: dict[str, str] = {}
        self._folded: dict[str, str] = {}
        self._entries_left = rules.MAX_ENTRIES + len(before) + len(self._known_folders)
        self._num_new = 0
        self._changed_bytes = 0
        self._read_bytes = 0

    def run(self) -> Tidied:
        try:
            self._properties(self._root, ".")
            self._folder(self._root, "")
        except _Over:
            self._refuse(".", "too_many_files", f"the workspace holds more than {rules.MAX_ENTRIES} new entries")
        if self._changed_bytes > rules.MAX_CHANGED_BYTES:
            most = rules.MAX_CHANGED_BYTES
            self._refuse(".", "too_large", f"what is new or changed has {self._changed_bytes} bytes (at most {most})")
        if self._num_new > rules.MAX_NEW_FILES:
            what = f"the workspace has {self._num_new} new files (at most {rules.MAX_NEW_FILES})"
            self._refuse(".", "too_many_files", what)
        return Tidied(
            stripped=tuple(self._stripped), refusals=tuple(self._refusals), num_refused=sum(self._counts.values()),
            files=dict(sorted(self._files.items())),
        )  # fmt: skip

    def _folder(self, descriptor: int, prefix: str) -> None:
        names: list[str] = []
        with os.scandir(descriptor) as entries:
            for entry in entries:
                self._entries_left -= 1
                if self._entries_left < 0:
                    raise _Over
                names.append(entry.name)
        for name in sorted(names):
            path = prefix + name
            try:
                self._entry(descriptor, name, path)
            except Refused as refused:
                self._refuse(path, refused.reason_class, refused.what)
            except OSError as error:
                if error.errno not in _CLOSED:
                    raise
                self._refuse(path, "special_file", f"cannot be read or cleaned: {error.strerror}")

    def _entry(self, parent: int, name: str, path: str) -> None:
        is_known = path in self._before or path in self._known_folders
        facts = os.stat(name, dir_fd=parent, follow_symlinks=False)
        is_folder = stat.S_ISDIR(facts.st_mode)
        is_output = name == rules.BUILD and is_folder and path == name
        if not is_known and (is_output or rules.is_leftover(name)):
            self._strip(parent, name, path, what="build output, which is made anew" if is_output else "leftover")
            return
        problem = "" if is_known else rules.bad_name(path)
        if not problem and name == rules.BUILD and not is_known and (is_folder or path == name):
            problem = "is taken for build output, which no checkpoint holds"
        if problem:
            raise Refused("bad_name", problem)
        if stat.S_ISLNK(facts.st_mode):
            refuse_link(path, target=os.readlink(name, dir_fd=parent))
        self._refuse_twin(path, is_known=is_known)
        # a file of an overlay file system may show the device of a layer
        if path in self._mounts or (is_folder and facts.st_dev != os.fstat(self._root).st_dev):
            raise Refused("special_file", "is a mount point")
        if is_folder:
            self._subfolder(parent, name, path)
        elif stat.S_ISREG(facts.st_mode):
            self._file(parent, name, path, facts=facts)
        else:
            raise Refused("special_file", f"is {kind_of(facts.st_mode)}")

    def _subfolder(self, parent: int, name: str, path: str) -> None:
        if not self._is_dry:
            open_up(parent, name)
        descriptor = os.open(name, _FOLDER, dir_fd=parent)
        try:
            self._properties(descriptor, path)
            self._folder(descriptor, path + "/")
        finally:
            os.close(descriptor)

    def _strip(self, parent: int, name: str, path: str, *, what: str) -> None:
        if path in self._above_mounts:
            raise Refused("special_file", "is a mount point, or holds one")
        if not self._is_dry:
            try:
                self._remover.remove(parent, name)
            except TooManyEntries:
                most = rules.MAX_STRIPPED_ENTRIES
                raise Refused("too_many_files", f"is a leftover of more than {most} entries") from None
        self._stripped.append(Stripped(file=rules.shown(path), what=what))

    def _refuse_twin(self, path: str, *, is_known: bool) -> None:
        twin = self._folded.setdefault(rules.folded(path), path)
        if twin != path and not (is_known and (twin in self._before or twin in self._known_folders)):
            raise Refused("bad_name", f"has the name of {rules.shown(twin)} but for upper and lower case")

    def _file(self, parent: int, name: str, path: str, *, facts: os.stat_result) -> None:
        known = self._before.get(path)
        most = rules.MAX_FILE_BYTES if known is None else rules.MAX_KNOWN_FILE_BYTES
        if facts.st_size > most:
            refuse_size(facts.st_size)
        if not self._is_dry and facts.st_nlink == 1:
            open_up(parent, name, rights=0o600)
        with opened(parent, name) as descriptor:
            data = self._content(descriptor, num_bytes=facts.st_size)
            digest = sha256(data).hexdigest()
            if digest != known:
                self._changed(data, is_new=known is None)
            if facts.st_nlink > 1:
                self._unlink_twin(parent, name, path, data=data, mode=facts.st_mode)
            else:
                self._properties(descriptor, path)
        self._files[path] = digest

    def _content(self, descriptor: int, *, num_bytes: int) -> bytes:
        if self._read_bytes > rules.MAX_READ_BYTES:
            raise Refused("too_large", f"is left unread: the workspace has more than {rules.MAX_READ_BYTES} bytes")
        with os.fdopen(descriptor, "rb", closefd=False) as stream:
            data = stream.read(num_bytes)
        self._read_bytes += len(data)
        return data

    def _changed(self, data: bytes, *, is_new: bool) -> None:
        """Count a file that is new or other than before; Refused for what it may not be."""
        self._num_new += is_new
        if len(data) > rules.MAX_FILE_BYTES:
            refuse_size(len(data))
        self._changed_bytes += len(data)
        if b"\0" in data:
            raise Refused("binary", "is a binary file: it holds NUL bytes")
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise Refused("binary", f"is a binary file: it is not UTF-8 at byte {error.start}") from None

    def _unlink_twin(self, parent: int, name: str, path: str, *, data: bytes, mode: int) -> None:
        """A file with a second name, which may lie out of the tree, becomes a file of its own."""
        self._stripped.append(Stripped(file=rules.shown(path), what="hard link"))
        if self._is_dry:
            return
        replace_in(parent, name, data, is_executable=bool(mode & stat.S_IXUSR))

    def _properties(self, descriptor: int, path: str) -> None:
        odd = strip_properties(descriptor, is_dry=self._is_dry)
        if odd:
            self._stripped.append(Stripped(file=rules.shown(path), what=odd))

    def _refuse(self, path: str, reason_class: str, what: str) -> None:
        count = self._counts.get(reason_class, 0) + 1
        self._counts[reason_class] = count
        if count > rules.MAX_TOLD:
            return
        name, todo = rules.shown(path), rules.WHAT_TO_DO[reason_class]
        text = f"{what}. Valid: {todo}" if path == "." else f"{name}: {what}. Valid: {todo}"
        self._refusals.append(Refusal(gate=rules.GATE, reason_class=reason_class, file=name, text=text))
