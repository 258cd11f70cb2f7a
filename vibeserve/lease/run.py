"""One process at a time carries out a run; another one that is started for the same plan waits and then reports."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vibeserve.core.documents import read_document, write_document
from vibeserve.lease.owner import Owner
from vibeserve.progress import Progress

_LOCK, _DOCUMENT = "owner.lock", "owner.json"
POLL_S = 0.5


@contextmanager
def own_run(folder: Path, *, run: str, progress: Progress, poll_s: float = POLL_S) -> Iterator[None]:
    """Hold the run whose state lies in `folder`; waits, and says for whom, while another process holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _lock(descriptor, folder, progress=progress, poll_s=poll_s)
        write_document(folder / _DOCUMENT, Owner.myself(run=run))
        try:
            yield
        finally:
            (folder / _DOCUMENT).unlink(missing_ok=True)
    finally:
        os.close(descriptor)


@contextmanager
def own_free_run(folder: Path, *, run: str) -> Iterator[bool]:
    """Hold the run in `folder` where nobody does; False, at once, where somebody does."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        write_document(folder / _DOCUMENT, Owner.myself(run=run))
        try:
            yield True
        finally:
            (folder / _DOCUMENT).unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def living_owner(folder: Path) -> Owner | None:
    """Who carries out the run in `folder`; None when nobody is known to. One on another machine counts as alive."""
    owner = last_owner(folder)
    return None if owner is None or owner.is_gone else owner


def _lock(descriptor: int, folder: Path, *, progress: Progress, poll_s: float) -> None:
    is_told = False
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not is_told:
                owner = last_owner(folder)
                who = str(owner) if owner else "it has just started"
                progress.event("plan", f"another process carries out this very run: waiting for it ({who})")
                is_told = True
        time.sleep(poll_s)


def last_owner(folder: Path) -> Owner | None:
    """Who carries out the run in `folder`, or died while it did; None where the last one ended by itself."""
    from dacite import DaciteError

    try:
        return read_document(folder / _DOCUMENT, Owner)
    except (FileNotFoundError, json.JSONDecodeError, UnicodeDecodeError, DaciteError):
        # a document that cannot be read says nothing; the lock decides
        return None
