"""Requests of a project's runs, or of one mailbox."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vibeserve.agents.mailbox.documents import MailboxRequest, seconds_of
from vibeserve.agents.mailbox.folder import REQUEST, RequestFolder
from vibeserve.core.paths import state_dir

MAILBOX = "mailbox"


@dataclass(frozen=True, kw_only=True)
class Mailbox:
    """A folder of requests."""

    path: Path
    run: str
    """empty where the folder does not tell"""


@dataclass(frozen=True, kw_only=True)
class Letter:
    """A request where it lies, as it was read."""

    mailbox: Mailbox
    folder: RequestFolder
    request: MailboxRequest
    state: str
    """open, answered, done, withdrawn or expired"""

    @property
    def submit_command(self) -> str:
        """What answers it from any working directory, but for the name of the output's file."""
        words = ["--mailbox", str(self.mailbox.path), "--tries", str(self.request.tries), "--output", "FILE"]
        return shlex.join(["vibeserve", "inbox", "submit", self.request.key, *words])

    def row(self) -> dict[str, Any]:
        """The request as `vibeserve inbox list --json` shows it."""
        request = self.request
        return {
            "schema_version": 1, "key": request.key, "role": request.role, "run": self.mailbox.run,
            "mailbox": str(self.mailbox.path), "tries": request.tries, "state": self.state,
            "is_waited_for": self.folder.is_waited_for, "made_at": request.made_at, "deadline_at": request.deadline_at,
            "remaining_s": max(0.0, round(seconds_of(request.deadline_at) - time.time(), 1)),
            "workspace": request.workspace, "is_writable": request.is_writable, "read_only": request.read_only,
            "prompt_file": str(self.folder.path / request.prompt_file), "feedback": request.feedback,
            "refused": request.refused, "submit": self.submit_command,
        }  # fmt: skip


def project_mailboxes(project: Path) -> list[Mailbox]:
    """Those of the project's runs, by name."""
    folders = sorted((state_dir(project) / "runs").glob(f"*/{MAILBOX}"))
    return [Mailbox(path=folder.absolute(), run=folder.parent.name) for folder in folders if folder.is_dir()]


def mailboxes_in(folder: Path) -> list[Mailbox]:
    """`folder` itself, and those of several runs below it."""
    here = folder.absolute()
    below = [sub for sub in sorted(here.iterdir()) if sub.is_dir() and not (sub / REQUEST).is_file()]
    runs = [Mailbox(path=sub, run=sub.name) for sub in below if any(sub.glob(f"*/{REQUEST}"))]
    return [Mailbox(path=here, run=""), *runs]


def find_letters(mailboxes: Iterable[Mailbox]) -> list[Letter]:
    """Every request, whatever its state, oldest first. InfraError where one cannot be read."""
    letters = [letter for mailbox in mailboxes for letter in _letters(mailbox)]
    return sorted(letters, key=lambda letter: (letter.request.made_at, letter.mailbox.run, letter.request.key))


def _letters(mailbox: Mailbox) -> Iterator[Letter]:
    for path in sorted(mailbox.path.glob(f"*/{REQUEST}")):
        folder = RequestFolder(path.parent)
        request = folder.read()
        if request is not None and request.key == folder.path.name:
            state = folder.state(request, now_s=time.time())
            yield Letter(mailbox=mailbox, folder=folder, request=request, state=state)
