"""Which skills agents opened, call by call: read from their transcripts, kept in the journal.

The tool `read_skill` says it; a command-line agent reads files, so a call that names `<skill>/SKILL.md` or a file
beside it counts as well. With the rounds of the same journal this tells what became of those in which a skill was read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from vibeserve.agents.requests import Turn
from vibeserve.journal import Event

EVENT = "skills_opened"
READ_SKILL = "read_skill"
KEY_OF_ROUND = re.compile(r"[pr](\d+)")


@dataclass(frozen=True, kw_only=True)
class Opened:
    """Event of the journal: one call that opened skills."""

    key: str
    """of the call, such as r02a1-implementer"""
    skills: tuple[str, ...]
    """by name, in the order in which they were opened"""

    @property
    def round(self) -> int:
        """Number of the round that the call belonged to."""
        match = KEY_OF_ROUND.match(self.key)
        return int(match[1]) if match else 0


@dataclass(frozen=True, kw_only=True)
class OpenedRow:
    """One call beside the outcome of its round."""

    round: int
    key: str
    skills: tuple[str, ...]
    outcome: str
    """empty while the round runs"""


def opened_in(turns: Iterable[Turn], *, names: Collection[str]) -> tuple[str, ...]:
    """Skills of `names` that the calls in a transcript open, each once."""
    pattern = re.compile(rf"(?:^|[/\s\"'])({'|'.join(map(re.escape, sorted(names)))})/[\w./-]*\w")
    found: dict[str, None] = {}
    for turn in turns:
        if turn.kind != "tool_call" or not names:
            continue
        if turn.name == READ_SKILL:
            name = _argument(turn.text)
            if name in names:
                found[name] = None
        else:
            found.update(dict.fromkeys(pattern.findall(turn.text)))
    return tuple(found)


def opened_rows(events: Sequence[Event]) -> list[OpenedRow]:
    """Every call of a run that opened skills, with what became of its round."""
    outcomes = {
        int(event.data["record"]["number"]): str(event.data["record"]["outcome"])
        for event in events
        if event.kind == "round"
    }
    calls = [
        Opened(key=event.data["key"], skills=tuple(event.data["skills"])) for event in events if event.kind == EVENT
    ]
    return [
        OpenedRow(round=call.round, key=call.key, skills=call.skills, outcome=outcomes.get(call.round, ""))
        for call in calls
    ]


def _argument(text: str) -> str:
    try:
        arguments = json.loads(text)
    except json.JSONDecodeError:
        return ""
    return str(arguments.get("name", "")) if isinstance(arguments, dict) else ""
