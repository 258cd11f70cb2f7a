"""The folder of one request: its files, its lock, its state, and the submitting side.

The controller alone writes `request.json`; who answers writes `result.json`. What was taken is `result-N.json`, N being
the try, so that a later `result.json` changes nothing.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vibeserve.agents.hygiene import Tidied, inspect_workspace
from vibeserve.agents.mailbox.documents import BaseTree, MailboxRequest, MailboxResult, seconds_of
from vibeserve.agents.mailbox.faults import output_faults
from vibeserve.agents.mailbox.reading import BrokenResult, parsed_result, read_plain
from vibeserve.core.documents import digest_of, read_document, write_document
from vibeserve.core.nouns import Refusal
from vibeserve.errors import InfraError, RefusedError

REQUEST, RESULT, PROMPT, BASE, WORKSPACE = "request.json", "result.json", "prompt.md", "base.json", "workspace"
LOCK, WAITING = "lock", "waiting.lock"
LOCK_WAIT_S = 5.0
LOCK_POLL_S = 0.05


class MailboxBusyError(RefusedError):
    """Somebody else holds the lock of a request."""


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """What `submit` accepted."""

    result: MailboxResult
    added: tuple[str, ...] = ()
    """files of the workspace, against what it began as"""
    changed: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    """leftovers of tools in the workspace, which are no part of the answer"""


@dataclass(frozen=True)
class RequestFolder:
    """`path` is `<mailbox>/<key>`."""

    path: Path

    @property
    def workspace(self) -> Path:
        return self.path / WORKSPACE

    @property
    def has_result(self) -> bool:
        return os.path.lexists(self.path / RESULT)

    def read(self, name: str = REQUEST) -> MailboxRequest | None:
        """The request, or an earlier one; None where there is none. InfraError where it cannot be read."""
        from dacite import DaciteError

        path = self.path / name
        try:
            return read_document(path, MailboxRequest)
        except FileNotFoundError:
            return None
        except (OSError, json.JSONDecodeError, UnicodeDecodeError, DaciteError, TypeError) as error:
            text = f"the mailbox request {path} cannot be read: {error}"
            raise InfraError(f"{text}\nnext: remove {self.path}, and what was asked there is asked anew") from error

    def base(self) -> dict[str, str]:
        """Relative path -> SHA-256 of the tree that the workspace began as."""
        path = self.path / BASE
        return read_document(path, BaseTree).files if path.is_file() else {}

    def state(self, request: MailboxRequest, *, now_s: float) -> str:
        """As `request.state`, but `answered` while a result waits to be taken, and `expired` when its time is over."""
        if request.state != "open":
            return request.state
        if self.has_result:
            return "answered"
        return "expired" if now_s > seconds_of(request.deadline_at) else "open"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Alone with the folder. MailboxBusyError where somebody else is for `LOCK_WAIT_S`."""
        with self._flock(LOCK) as is_held:
            if not is_held:
                text = f"request '{self.path.name}' is being answered by another process right now"
                raise MailboxBusyError(f"{text}\nnext: `vibeserve inbox list` shows whether it is open still")
            yield

    @contextmanager
    def waiting(self) -> Iterator[bool]:
        """Held by the one who waits for the result. False where another process waits."""
        with self._flock(WAITING) as is_held:
            yield is_held

    @property
    def is_waited_for(self) -> bool:
        """A run waits for the result right now; else the run has to be started again to take it."""
        try:
            descriptor = os.open(self.path / WAITING, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    @contextmanager
    def _flock(self, name: str) -> Iterator[bool]:
        """The kernel drops the lock when its holder dies."""
        descriptor = os.open(self.path / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            yield _acquire(descriptor, wait_s=LOCK_WAIT_S)
        finally:
            os.close(descriptor)

    def read_result(self, request: MailboxRequest) -> MailboxResult | None:
        """The valid answer to `request` that lies there; None for none. BrokenResult for anything else."""
        if not self.has_result:
            return None
        result = parsed_result(read_plain(self.path / RESULT))
        if result.key != request.key:
            raise BrokenResult(f"key: {result.key!r} is not this request's; valid: {request.key}")
        if result.tries != request.tries:
            raise BrokenResult(f"tries: {result.tries} is not the try that is asked for; valid: {request.tries}")
        faults = output_faults(result.output, schema=request.output_schema)
        if faults:
            raise BrokenResult("; ".join(faults))
        return result

    def inspect(self) -> Tidied:
        """The workspace as it would be taken. RefusedError where it cannot be looked at."""
        try:
            return inspect_workspace(self.workspace, before=self.base())
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
                raise
            text = f"the workspace {self.workspace} cannot be read: {error.strerror}"
            raise RefusedError(f"{text}\nnext: put it back, as a folder that you own") from None

    def submit(self, output: Any, *, tries: int | None = None, by: str = "", note: str = "") -> Submitted:
        """Answer the open request. RefusedError, and nothing is written, where it is not open, the output does not fit
        its schema, or the workspace holds what no candidate may hold."""
        with self.locked():
            request = self._open_request(tries)
            faults = output_faults(output, schema=request.output_schema)
            if faults:
                told = "\n".join(f"  {fault}" for fault in faults)
                reasons = [Refusal(gate="agent", reason_class="unusable_output", text=fault) for fault in faults]
                raise RefusedError(f"the output does not fit request '{request.key}'\n{told}", reasons=reasons)
            tidied = self._tidied(request)
            tree = digest_of(tidied.files) if request.is_writable else ""
            result = MailboxResult(
                key=request.key, tries=request.tries, output=output, by=by, note=note, tree_digest=tree
            )
            write_document(self.path / RESULT, result)
        return _submitted(result, tidied, base=self.base() if request.is_writable else {})

    def withdraw(self, why: str) -> None:
        """Take no answer to the open request any more; who waits for one is told."""
        with self.locked():
            request = self.read()
            if request is not None and request.state == "open":
                write_document(self.path / REQUEST, replace(request, state="withdrawn", why=why))

    def _open_request(self, tries: int | None) -> MailboxRequest:
        request = self.read()
        if request is None:
            raise RefusedError(f"there is no request '{self.path.name}' any more")
        state = self.state(request, now_s=time.time())
        if state in ("answered", "done"):
            text = f"request '{request.key}' is answered already{self._by(request)}; no second answer is taken"
            raise RefusedError(text)
        if state != "open":
            why = request.why or f"its deadline was {request.deadline_at}"
            again = "; the run asks again when it is started again" if state == "expired" else ""
            raise RefusedError(f"request '{request.key}' is {state}: {why}{again}")
        if tries not in (None, request.tries):
            text = f"request '{request.key}' is asked for the {_ordinal(request.tries)} time; try {tries} is over"
            raise RefusedError(f"{text}\nnext: vibeserve inbox show {request.key}")
        return request

    def _by(self, request: MailboxRequest) -> str:
        name = RESULT if self.has_result else f"result-{request.tries}.json"
        try:
            by = parsed_result(read_plain(self.path / name)).by
        except (BrokenResult, OSError):
            return ""
        return f" by {by}" if by else ""

    def _tidied(self, request: MailboxRequest) -> Tidied:
        if not request.is_writable:
            return Tidied()
        tidied = self.inspect()
        if tidied.refusals:
            told = "\n".join(f"  {refusal.text}" for refusal in tidied.refusals)
            raise RefusedError(f"the workspace {self.workspace} cannot be taken\n{told}", reasons=tidied.refusals)
        return tidied


def _acquire(descriptor: int, *, wait_s: float) -> bool:
    end_s = time.monotonic() + wait_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end_s:
                return False
        time.sleep(LOCK_POLL_S)


def _submitted(result: MailboxResult, tidied: Tidied, *, base: dict[str, str]) -> Submitted:
    files = tidied.files
    return Submitted(
        result=result,
        added=tuple(sorted(set(files) - set(base))),
        changed=tuple(sorted(name for name in set(files) & set(base) if files[name] != base[name])),
        deleted=tuple(sorted(set(base) - set(files))),
        left_out=tuple(item.file for item in tidied.stripped if item.what == "leftover"),
    )


def _ordinal(number: int) -> str:
    return {1: "1st", 2: "2nd", 3: "3rd"}.get(number, f"{number}th")
