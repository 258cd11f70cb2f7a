"""The queue in front of one device: a folder with one file per holder or waiter, changed under a short file lock.

Whoever comes takes a ticket. Shared entries go together; an exclusive one goes alone; nobody overtakes a waiter whom
it would delay, so neither kind starves. A holder beats: it touches its file every few seconds. An entry is dropped
when its process is provably gone, or when a watcher has seen no beat for `expiry_s` of its own monotonic time, which
stands still while a machine is suspended.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from vibeserve.core.documents import read_document, write_document
from vibeserve.errors import InfraError
from vibeserve.lease.owner import Owner

_MUTEX = "mutex"
_SUFFIX = ".lease.json"


class Mode(Enum):
    SHARED = "shared"
    EXCLUSIVE = "exclusive"


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Document: one holder or waiter of a device."""

    ticket: int
    """place in the queue"""
    token: str
    mode: Mode
    is_held: bool
    what: str
    """what it is wanted for, such as `certification`"""
    owner: Owner
    schema_version: int = 1

    @property
    def file_name(self) -> str:
        return f"{self.ticket:09d}-{self.token}{_SUFFIX}"

    def goes_with(self, other: Entry) -> bool:
        return self.mode is Mode.SHARED and other.mode is Mode.SHARED

    def __str__(self) -> str:
        return f"held by {self.owner} ({self.what})" if self.is_held else f"next is {self.owner} ({self.what})"


class DeviceQueue:
    """The queue in `folder`, as one process sees it."""

    def __init__(self, folder: Path, *, expiry_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._expiry_s = expiry_s
        self._monotonic = monotonic
        self._beats: dict[str, tuple[int, float]] = {}
        """file name -> (modification time as seen last, since when it has been that)"""

    def join(self, *, mode: Mode, what: str, owner: Owner) -> Entry:
        """Take a ticket behind everyone who is there."""
        with self._mutex():
            ticket = max((entry.ticket for entry in self._read()), default=0) + 1
            token = secrets.token_hex(4)
            entry = Entry(ticket=ticket, token=token, mode=mode, is_held=False, what=what, owner=owner)
            write_document(self._folder / entry.file_name, entry)
        return entry

    def blockers(self, entry: Entry) -> list[Entry]:
        """Those whom `entry` has to wait for, holders first; when there are none, `entry` holds the device from now on.

        Drops entries of the dead. An entry that was itself dropped meanwhile (this process stood still) is queued
        again where it was.
        """
        with self._mutex():
            others = [other for other in self._read() if other.token != entry.token]
            gone = [other for other in others if other.owner.is_gone or self._is_silent(other)]
            for other in gone:
                (self._folder / other.file_name).unlink(missing_ok=True)
            before = [
                other
                for other in others
                if other not in gone and not entry.goes_with(other) and (other.is_held or other.ticket < entry.ticket)
            ]
            self._place(entry, is_held=not before)
        return sorted(before, key=lambda other: (not other.is_held, other.ticket))

    def _place(self, entry: Entry, *, is_held: bool) -> None:
        """Written when it changes only: a waiter must not keep the disk busy beside a measurement."""
        path = self._folder / entry.file_name
        if is_held:
            write_document(path, replace(entry, is_held=True, owner=replace(entry.owner, since_s=time.time())))
        elif not path.exists():
            write_document(path, entry)

    def leave(self, entry: Entry) -> bool:
        """Give up the place or the device. False when it had been taken away."""
        try:
            (self._folder / entry.file_name).unlink()
        except FileNotFoundError:
            return False
        return True

    def beat(self, entry: Entry) -> bool:
        """Show that the owner lives. False when the entry had been taken away."""
        try:
            os.utime(self._folder / entry.file_name)
        except FileNotFoundError:
            return False
        return True

    def entries(self) -> list[Entry]:
        """Everyone whose process is not provably gone, in order; changes nothing."""
        if not self._folder.is_dir():
            return []
        return [entry for entry in self._read() if not entry.owner.is_gone]

    def _read(self) -> list[Entry]:
        found = []
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            entry = _read_entry(path)
            if entry is not None:
                found.append(entry)
        return found

    def _is_silent(self, entry: Entry) -> bool:
        try:
            beat_ns = (self._folder / entry.file_name).stat().st_mtime_ns
        except FileNotFoundError:
            return False
        now_s = self._monotonic()
        seen_ns, since_s = self._beats.get(entry.file_name, (0, now_s))
        if seen_ns != beat_ns:
            self._beats[entry.file_name] = (beat_ns, now_s)
            return False
        return now_s - since_s > self._expiry_s

    @contextmanager
    def _mutex(self) -> Iterator[None]:
        """Held for milliseconds; the kernel drops it when the holder dies."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self._folder / _MUTEX, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise InfraError(
                f"device leases cannot be kept in {self._folder}: {error.strerror}\n"
                "next: name a folder that can be written in VIBESERVE_LEASES"
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _read_entry(path: Path) -> Entry | None:
    from dacite import DaciteError

    try:
        return read_document(path, Entry)
    except FileNotFoundError:
        return None
    except (json.JSONDecodeError, UnicodeDecodeError, DaciteError, TypeError, ValueError) as error:
        raise InfraError(
            f"the device lease {path} cannot be read: {error}\nnext: remove it, unless another version wrote it"
        ) from error
