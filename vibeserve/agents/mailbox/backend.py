"""Back end `external`: a folder mailbox. A person or any other tool plays the role."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TypeVar

from vibeserve import spec
from vibeserve.agents.mailbox.asking import Asking
from vibeserve.agents.mailbox.documents import MailboxRequest, MailboxResult, seconds_of
from vibeserve.agents.mailbox.folder import MailboxBusyError, RequestFolder
from vibeserve.agents.requests import AgentRequest, AgentResult, ExitFacts, Turn
from vibeserve.core.signals import stop_if_asked
from vibeserve.errors import AgentInfraError

T = TypeVar("T")

POLL_S = 0.5
KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,126}")


class ExternalBackend:
    """Puts each request into the folder of its key below `mailbox` and waits for the result.

    The same request is found again by a later process: it goes on waiting until the same deadline, and takes a result
    that came meanwhile. Who answers works in a copy of the request's workspace, which outlives the process; when the
    result is taken, the edits are made in the request's workspace. `tell` is called with one line when a request is
    opened. A person's time is not the run's: `aside` is entered while it waits, as for a pause.
    """

    name = "external"
    resumes = True

    def __init__(
        self, agent: spec.RoleAgent, declared: spec.Agents, *, mailbox: Path, poll_s: float = POLL_S,
        tell: Callable[[str], None] = lambda text: None,
        aside: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:  # fmt: skip
        self._agent = agent
        self._deadline_s = declared.deadline_s
        self._mailbox = mailbox.absolute()
        self._poll_s = poll_s
        self._tell = tell
        self._aside = aside

    def run(self, request: AgentRequest) -> AgentResult:
        """Wait for the answer. AgentInfraError (lasting) when none came before the deadline; an interrupt ends the wait
        at once and leaves the request open."""
        if not KEY.fullmatch(request.key):
            raise ValueError(f"key '{request.key}' cannot name a folder: {KEY.pattern}")
        started_s = time.monotonic()
        asking = Asking(RequestFolder(self._mailbox / request.key), request, self._deadline_s)
        asking.folder.path.mkdir(parents=True, exist_ok=True)
        with asking.folder.waiting() as is_alone:
            if not is_alone:
                text = f"another process waits for the answer to '{request.key}' in {self._mailbox}"
                raise AgentInfraError(f"{text}\nnext: wait for it, or end it, and start again", is_lasting=True)
            result = self._await(asking)
        text = json.dumps(result.output)
        seconds = time.monotonic() - started_s
        detail = f"answered by {result.by}" if result.by else "answered"
        notes = [Turn(kind="note", name="by", text=note) for note in (detail, result.note) if note]
        return AgentResult(
            text=text, exit=ExitFacts(reason="done", seconds=seconds, num_turns=1, detail=detail),
            transcript=(*notes, Turn(kind="message", text=text)),
        )  # fmt: skip

    def _await(self, asking: Asking) -> MailboxResult:
        asked = _patiently(asking.open)
        command = f"vibeserve inbox show {asked.key} --mailbox {self._mailbox}"
        if asked.state == "open":
            self._tell(f"{asked.role} is asked until {asked.deadline_at}: {command}")
        result = _patiently(asking.take)
        if result is not None:
            return result
        # leases are the main thread's; beside it, several requests may wait at once
        is_main = threading.current_thread() is threading.main_thread()
        with self._aside() if is_main else nullcontext():
            result = self._poll(asking, asked)
        result = result or _patiently(asking.take_or_expire)
        if result is None:
            raise AgentInfraError(
                f"nobody answered request '{asked.key}' to the {asked.role} before its deadline {asked.deadline_at} "
                f"(agents.deadline_s={self._deadline_s:g})\nnext: start the same command again, which asks again, then "
                f"{command}; or raise agents.deadline_s",
                is_lasting=True,
            )
        return result


    def _poll(self, asking: Asking, asked: MailboxRequest) -> MailboxResult | None:
        """Until the deadline. KeyboardInterrupt as soon as somebody asks the run to end: the request stays open."""
        end_s = seconds_of(asked.deadline_at)
        while asked.state == "done" or time.time() <= end_s:
            result = _patiently(asking.take)
            if result is not None:
                return result
            stop_if_asked()
            time.sleep(self._poll_s)
        return None


def _patiently(step: Callable[[], T]) -> T:
    """`step`; AgentInfraError where somebody holds the lock longer than a submission takes, or the folder is gone."""
    try:
        return step()
    except MailboxBusyError as error:
        raise AgentInfraError(str(error)) from error
    except FileNotFoundError as error:
        raise AgentInfraError(f"the mailbox was changed while an answer was waited for: {error}") from error
