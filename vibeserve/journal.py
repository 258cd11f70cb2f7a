"""Append-only journal of one run: `journal.jsonl`, one event a line, the only mutable state that a resume reads.

A line is canonical JSON ending in `,"crc32":"xxxxxxxx"}`, the CRC-32 of the bytes before that suffix. Sequence numbers
start at 0 without gaps. There is one writer, held by flock. What a crash leaves half written at the end is cut off when
the journal is opened again; a damaged record with valid ones after it is no crash and is refused. So is a whole record
of a version that cannot be read: it is never taken for a torn one.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

from vibeserve.core.documents import canonical_json, to_data
from vibeserve.core.storage import cannot_write
from vibeserve.errors import InfraError

CRASH_VARIABLE = "VIBESERVE_CRASH_AT"
"""for tests of resuming: the append at which this process dies"""
CRASH_SIDES = ("after", "before", "within")
"""within: half of the line is on the disk"""
SCHEMA_VERSION = 1
UPGRADES: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""schema_version of a record -> what makes one of the next version of it. Records are upgraded as they are read; the
file stays as it is, and every line says its version"""
_SUFFIX = ',"crc32":"%08x"}'
_SUFFIX_BYTES = len(_SUFFIX % 0)


class JournalError(InfraError):
    """The journal is damaged, held by another process, or cannot be written."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One record. `time_s` is wall time (seconds since the epoch); `data` is plain JSON data."""

    seq: int
    time_s: float
    kind: str
    data: Any
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, kw_only=True)
class CrashPoint:
    """`[before: | within: | after:]3`, the third append of this process, or `round:3`, the third of a kind."""

    side: str
    kind: str
    number: int

    @classmethod
    def parse(cls, text: str) -> CrashPoint | None:
        """None for an empty text; InfraError for one that names no append."""
        if not text:
            return None
        first, _, rest = text.partition(":")
        side, where = (first, rest) if first in CRASH_SIDES else ("after", text)
        kind, _, number = where.rpartition(":")
        if not number.isdecimal():
            raise InfraError(
                f"{CRASH_VARIABLE}={text} names no append of the journal\n"
                f"next: 3, round:3, or one of both behind {', '.join(f'{each}:' for each in CRASH_SIDES)}"
            )
        return cls(side=side, kind=kind, number=int(number))

    def is_at(self, kind: str, *, number: int, number_of_kind: int) -> bool:
        return self.number == (number_of_kind if self.kind == kind else number if not self.kind else -1)


class Journal:
    """Writer of one run's journal. Use `Journal.open`; close it or use it as a context manager."""

    def __init__(self, path: Path, descriptor: int, events: list[Event], *, truncated_bytes: int) -> None:
        self.path = path
        self.truncated_bytes = truncated_bytes
        """bytes of a torn tail that were cut off when it was opened"""
        self._descriptor = descriptor
        self._events = events
        self._of_kind: defaultdict[str, list[Event]] = defaultdict(list)
        for event in events:
            self._of_kind[event.kind].append(event)
        self._num_appends = 0
        self._num_of_kind: Counter[str] = Counter()
        self._crash_at = CrashPoint.parse(os.environ.get(CRASH_VARIABLE, ""))
        self._writing = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> Journal:
        """Open or create the journal at `path`, lock it for writing and recover it.

        Raises `JournalError` when another process writes it or a record in its middle is damaged.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            _lock(descriptor, path)
            raw = path.read_bytes()
            events, num_good_bytes = _parse(raw, path)
            if num_good_bytes < len(raw):
                os.ftruncate(descriptor, num_good_bytes)
                os.fsync(descriptor)
            _sync_folder(path.parent)
            return cls(path, descriptor, events, truncated_bytes=len(raw) - num_good_bytes)
        except BaseException:
            os.close(descriptor)
            raise

    def append(self, kind: str, data: Any = None, *, durable: bool = True) -> int:
        """Append an event and return its sequence number.

        `durable` waits for the disk (about 4 ms): use it for transitions, and leave it off for events that only inform.
        `data` may hold dataclasses, enums and paths. NaN and infinity are refused with `ValueError`. StorageError where
        the disk does not take it: then nothing of it is in the journal, and the next append may be tried.
        """
        # agents spend in threads of their own
        with self._writing:
            event = Event(seq=len(self._events), time_s=time.time(), kind=kind, data=to_data(data))
            line = _encode(event)
            self._num_appends += 1
            self._num_of_kind[kind] += 1
            self._crash("before", kind)
            self._crash("within", kind, torn=line[: len(line) // 2])
            self._write(line, is_durable=durable)
            written = _decode(line)
            self._events.append(written)
            self._of_kind[kind].append(written)
            self._crash("after", kind)
        return event.seq

    def _crash(self, side: str, kind: str, *, torn: bytes = b"") -> None:
        """End here, as `kill -9` would, where the tests ask for it."""
        point = self._crash_at
        number_of_kind = self._num_of_kind[kind]
        if point and point.side == side and point.is_at(kind, number=self._num_appends, number_of_kind=number_of_kind):
            os.write(self._descriptor, torn)
            os.kill(os.getpid(), signal.SIGKILL)

    def events(self, kind: str | None = None) -> list[Event]:
        """Every event in order, or those of one kind."""
        return list(self._events if kind is None else self._of_kind.get(kind, ()))

    def last(self, kind: str | None = None) -> Event | None:
        """The newest event, or the newest of one kind."""
        found = self._events if kind is None else self._of_kind.get(kind, [])
        return found[-1] if found else None

    def close(self) -> None:
        """Release the lock. Closing twice is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, line: bytes, *, is_durable: bool) -> None:
        if self._descriptor < 0:
            raise JournalError(f"journal {self.path} is closed")
        size = os.fstat(self._descriptor).st_size
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            if is_durable:
                os.fdatasync(self._descriptor)
        except OSError as error:
            # a full disk may have taken half a line; the next append must not follow it
            with contextlib.suppress(OSError):  # what cannot be cut off now is cut off when it is opened again
                os.ftruncate(self._descriptor, size)
            kept = f"its {len(self._events)} events are whole; free the disk and start the same command again"
            raise cannot_write(self.path, error, what="the journal", needed_bytes=len(line), step=kept) from error


def read_events(path: Path) -> list[Event]:
    """Events of a journal that someone else may be writing: no lock, a torn tail is left out, nothing is changed."""
    return _parse(path.read_bytes(), path)[0]


def _lock(descriptor: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise JournalError(
            f"journal {path} is being written by another vibeserve process\n"
            "next: wait for it, or end it, and start the same command again"
        ) from None


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _encode(event: Event) -> bytes:
    body = canonical_json(event)[:-1]
    return (body + _SUFFIX % crc32(body.encode()) + "\n").encode()


def _decode(line: bytes) -> Event:
    """Event of one full line; `ValueError` when it is none."""
    text = line.decode()
    if not text.endswith("\n"):
        raise ValueError("the line has no end")
    body, suffix = text[: -_SUFFIX_BYTES - 1], text[-_SUFFIX_BYTES - 1 : -1]
    if suffix != _SUFFIX % crc32(body.encode()):
        raise ValueError("its checksum does not match")
    record = _upgraded(json.loads(body + "}"))
    return Event(seq=record["seq"], time_s=record["time_s"], kind=record["kind"], data=record["data"])


class _ForeignVersion(Exception):
    """A whole record that this version cannot read."""


def _upgraded(record: dict[str, Any]) -> dict[str, Any]:
    declared = version = record.get("schema_version")
    while version != SCHEMA_VERSION:
        if version not in UPGRADES:
            raise _ForeignVersion(f"schema_version {declared}")
        record, version = UPGRADES[version](record), version + 1
    return record


def _lines(raw: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset < len(raw):
        end = raw.find(b"\n", offset) + 1 or len(raw)
        yield offset, raw[offset:end]
        offset = end


def _parse(raw: bytes, path: Path) -> tuple[list[Event], int]:
    """Events of the longest valid prefix, and its length in bytes. Refuses damage that valid records follow."""
    events: list[Event] = []
    damage = ""
    num_good_bytes = len(raw)
    for number, (offset, line) in enumerate(_lines(raw), start=1):
        try:
            event = _decode(line)
        except _ForeignVersion as error:
            raise _version_error(path, number, str(error)) from None
        except ValueError as error:
            if not damage:
                damage, num_good_bytes = f"line {number}: {error}", offset
            continue
        if not damage and event.seq != len(events):
            damage = f"line {number}: sequence number {event.seq}, expected {len(events)}"
        if damage:
            raise JournalError(
                f"journal {path} is damaged at {damage}, and valid records follow: this is no interrupted write\n"
                "next: restore the file from a copy, or remove the run's folder to start it anew"
            )
        events.append(event)
    return events, num_good_bytes


def _version_error(path: Path, number: int, version: str) -> JournalError:
    upgradable = "".join(f", and {each} upgraded" for each in sorted(UPGRADES))
    return JournalError(
        f"journal {path} holds a record of {version} (line {number}); this version of VibeServe reads {SCHEMA_VERSION}"
        f"{upgradable}; the file was left as it is\n"
        "next: go on with the version of VibeServe that wrote it, or remove the run's folder to start it anew"
    )
