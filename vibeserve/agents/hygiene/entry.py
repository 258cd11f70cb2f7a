"""One entry of a workspace: opened without following it, and why it is refused."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from vibeserve.agents.hygiene import rules

# a named pipe that takes a file's place between two looks must not block
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_ODD_BITS = {
    stat.S_ISUID: "setuid bit", stat.S_ISGID: "setgid bit", stat.S_ISVTX: "sticky bit", stat.S_IWOTH: "writable by all"
}  # fmt: skip
_ATTRIBUTES = ("user.", "trusted.", "system.posix_acl_", "security.capability")
"""extended attributes that go; labels that the system itself puts on every file stay"""


class Refused(Exception):
    """One entry is refused."""

    def __init__(self, reason_class: str, what: str) -> None:
        self.reason_class = reason_class
        self.what = what


@contextmanager
def opened(parent: int, name: str) -> Iterator[int]:
    descriptor = os.open(name, _FILE, dir_fd=parent)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise Refused("special_file", "is no plain file any more")
        yield descriptor
    finally:
        os.close(descriptor)


def strip_properties(descriptor: int, *, is_dry: bool) -> str:
    """Take mode bits and extended attributes away that no candidate needs; returns which, empty for none."""
    mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
    odd = [what for bit, what in _ODD_BITS.items() if mode & bit]
    if odd and not is_dry:
        os.fchmod(descriptor, mode & 0o775)
    for name in _attributes(descriptor):
        odd.append(f"extended attribute {rules.shown(name)}")
        if not is_dry:
            os.removexattr(descriptor, name)
    return ", ".join(odd)


def _attributes(descriptor: int) -> list[str]:
    try:
        names = os.listxattr(descriptor)
    except OSError as error:
        if error.errno in (errno.ENOTSUP, errno.ENOSYS):
            return []
        raise
    return sorted(name for name in names if name.startswith(_ATTRIBUTES))


def refuse_size(num_bytes: int) -> NoReturn:
    raise Refused("too_large", f"has {num_bytes} bytes or more (at most {rules.MAX_FILE_BYTES} in a file)")


def refuse_link(path: str, *, target: str) -> NoReturn:
    """By the text of the link alone: it is not followed."""
    place = os.path.normpath(os.path.join(os.path.dirname(path), target))  # noqa: PTH118, PTH120
    is_out = os.path.isabs(target) or place == ".." or place.startswith("../")  # noqa: PTH117
    where = ", out of the workspace" if is_out else ""
    raise Refused("link_out" if is_out else "link", f"is a symbolic link to {rules.shown(target)}{where}")


def kind_of(mode: int) -> str:
    kinds = {
        stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"
    }  # fmt: skip
    return kinds.get(stat.S_IFMT(mode), "no plain file")
