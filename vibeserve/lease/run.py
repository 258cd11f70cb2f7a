"""One process at a time carries out a run; another one that is started for the same plan is refused, or waits where it
is a job of a sweep."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vibeserve.core.documents import read_document, write_document
from vibeserve.errors import InfraError, VersionError
from vibeserve.lease.owner import Owner, clock_text
from vibeserve.progress import Progress

_LOCK, _DOCUMENT = "owner.lock", "owner.json"
POLL_S = 0.5


@contextmanager
def own_run(folder: Path, *, run: str, progress: Progress) -> Iterator[None]:
    """Hold the run whose state lies in `folder`. InfraError, with who and where, while another process holds it."""
    with _opened(folder) as descriptor:
        if not _locked(descriptor):
            raise _held_error(run, last_owner(folder))
        with _recorded(folder, run=run):
            yield


@contextmanager
def await_run(folder: Path, *, run: str, progress: Progress, poll_s: float = POLL_S) -> Iterator[None]:
    """The same for a job of a sweep: waits, and says for whom, while another process holds the run."""
    with _opened(folder) as descriptor:
        if not _locked(descriptor):
            who = last_owner(folder) or "it has just started"
            progress.event("plan", f"another process carries out this very run: waiting for it ({who})")
            while not _locked(descriptor):
                time.sleep(poll_s)
        with _recorded(folder, run=run):
            yield


@contextmanager
def own_free_run(folder: Path, *, run: str) -> Iterator[bool]:
    """Hold the run in `folder` where nobody does; False, at once, where somebody does."""
    with _opened(folder) as descriptor:
        if not _locked(descriptor):
            yield False
            return
        with _recorded(folder, run=run):
            yield True


def living_owner(folder: Path) -> Owner | None:
    """Who carries out the run in `folder`; None when nobody is known to. One on another machine counts as alive."""
    owner = last_owner(folder)
    return None if owner is None or owner.is_gone else owner


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    """Whether the run is ours from now on. The kernel gives the lock back when its holder dies, however it dies."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def _recorded(folder: Path, *, run: str) -> Iterator[None]:
    """Say who holds the run. InfraError where an owner on another machine left its record: a shared folder's lock may
    not reach there, so the record decides."""
    before = last_owner(folder)
    if before is not None and before.is_elsewhere:
        raise _held_error(run, before, record=folder / _DOCUMENT)
    write_document(folder / _DOCUMENT, Owner.myself(run=run))
    try:
        yield
    finally:
        (folder / _DOCUMENT).unlink(missing_ok=True)


def _held_error(run: str, owner: Owner | None, *, record: Path | None = None) -> InfraError:
    if owner is None:
        return InfraError(
            f"run {run} is being carried out by another process, which has just started\n"
            "next: `vibeserve status` shows it; start again when it has ended"
        )
    who = f"pid {owner.pid} on {owner.host}, since {clock_text(owner.since_s)} ({owner.command})"
    if record is not None:
        return InfraError(
            f"run {run} was being carried out by {who}, and from here it cannot be told whether it still is\n"
            f"next: look there; if it has ended, remove {record} and start again"
        )
    return InfraError(
        f"run {run} is being carried out by {who}\n"
        "next: `vibeserve status` shows how far it is, `vibeserve steer` pauses, changes or stops its search, "
        f"`kill {owner.pid}` ends it; the same command then goes on from there"
    )


def last_owner(folder: Path) -> Owner | None:
    """Who carries out the run in `folder`, or died while it did; None where the last one ended by itself."""
    from dacite import DaciteError

    try:
        return read_document(folder / _DOCUMENT, Owner)
    except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError, DaciteError, VersionError):
        # a document that cannot be read says nothing; the lock decides
        return None
