"""What the run of a mailbox made of an answer, and whether it will ask anything more."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve.cli.runs import PACKAGED
from vibeserve.core.nouns import Round

if TYPE_CHECKING:
    from vibeserve.agents.mailbox import Letter, Mailbox

JOURNAL = "journal.jsonl"
_KEY = re.compile(r"[rp](\d+)(?:a(\d+))?-\w+")
"""r01a2-implementer: attempt 2 of round 1; p03-planner: the proposal of round 3"""


def became_of(letter: Letter) -> str:
    """One line on the round, or the attempt of it, that this request belongs to; empty where nothing is known of it."""
    match = _KEY.fullmatch(letter.request.key)
    if match is None or not letter.mailbox.run:
        return ""
    number, attempt = int(match[1]), int(match[2] or 0)
    for record in _rounds(letter.mailbox):
        if record.number == number:
            return f"round {number}{f', attempt {attempt}' if attempt else ''}: {_outcome(record, attempt)}"
    return f"round {number} is not decided yet" if letter.state in ("answered", "done") else ""


def _outcome(record: Round, attempt: int) -> str:
    if 0 < attempt <= len(record.refused_attempts):
        earlier = record.refused_attempts[attempt - 1]
        return f"{earlier.outcome.value}: {earlier.reason}"
    headline = record.decision.headline if record.decision else None
    ratio = f"; x{headline.ratio:.3f} [{headline.ci_low:.3f}, {headline.ci_high:.3f}]" if headline else ""
    told = "" if headline and "x" + f"{headline.ratio:.3f}" in record.reason else ratio
    return f"{record.outcome.value}: {record.reason}{told}"


def _rounds(mailbox: Mailbox) -> Iterator[Round]:
    from vibeserve.core.documents import from_data
    from vibeserve.journal import read_events

    path = mailbox.path.parent / JOURNAL
    if path.is_file():
        for event in read_events(path):
            if event.kind == "round":
                yield from_data(Round, event.data["record"])


def runs_text(project: Path) -> str:
    """What the project's runs are doing, so that an empty mailbox has a reason."""
    from vibeserve.core.paths import state_dir
    from vibeserve.status import RunState, run_statuses

    statuses = run_statuses(state_dir(project))
    working = [status for status in statuses if status.state is RunState.RUNNING]
    if working:
        told = [f"{status.run} is at step {status.step or 'start'}" for status in working]
        return f"project {project}: {'; '.join(told)}"
    last = f", the last one, {statuses[0].run}, is {statuses[0].state.value}" if statuses else ""
    return f"project {project}: no run is at work{last}"


class Ended:
    """Whether every run that was seen at work has left its artifact: then nothing more will be asked."""

    def __init__(self) -> None:
        self._unfinished: set[Path] = set()

    def runs(self, mailboxes: Sequence[Mailbox]) -> list[str]:
        """Their names, once all of them have; empty until then, and where none was seen at work."""
        journals = {mailbox.path.parent / JOURNAL: mailbox.run for mailbox in mailboxes if mailbox.run}
        finished = {path for path in journals if _is_packaged(path)}
        self._unfinished |= {path for path in journals if path not in finished and path.is_file()}
        seen = self._unfinished & set(journals)
        return sorted(journals[path] for path in seen) if seen and seen <= finished else []


def _is_packaged(path: Path) -> bool:
    from vibeserve.journal import read_events

    return path.is_file() and any(event.kind == PACKAGED for event in read_events(path))
