"""`vibeserve status`: how far a repository's runs are and who carries them out, read without disturbing them."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vibeserve.arguments import VerbParser
from vibeserve.config.targets import project_root
from vibeserve.control import CONTROL_EVENT, steering_of, told
from vibeserve.core.documents import to_data
from vibeserve.core.paths import lease_dir, state_dir
from vibeserve.errors import SpecError
from vibeserve.journal import Event, JournalError, read_events
from vibeserve.lease import Owner, lease_lines, lease_rows, living_owner
from vibeserve.planning import BACKLOG

_MAX_TEXT = 80


@dataclass(frozen=True, kw_only=True)
class SpentBy:
    """Tokens and cost of one role in one round."""

    round: int
    role: str
    model: str
    num_requests: int
    tokens: int
    usd: float | None
    """None: the model has no price"""

    def line(self) -> str:
        cost = "no price" if self.usd is None else f"{self.usd:.4f} USD"
        asked = f"{self.num_requests} requests, {self.tokens} tokens, {cost}"
        return f"    round {self.round} {self.role} ({self.model}): {asked}"


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """One run: its journal's folder under `.vibeserve`, what it is doing, and its newest event.

    `state`: running (a process carries it out), paused (so does one, and it waits for people), finished (it left its
    artifact), stopped (neither: the same command goes on with it) or unreadable, with the `fault`.
    """

    run: str
    num_events: int
    last_kind: str
    last_at_s: float
    """seconds since the epoch"""
    last_data: Any = None
    fault: str = ""
    state: str = "stopped"
    owner: Owner | None = None
    """the process that carries it out"""
    spent: tuple[SpentBy, ...] = ()
    """by agents, by round and role"""

    def line(self, *, now_s: float) -> str:
        if self.fault:
            return f"{self.run}  {self.fault}"
        state = f"{self.state} in pid {self.owner.pid}" if self.owner else self.state
        if not self.num_events:
            return f"{self.run}  {state}, no event yet"
        last = f"last: {_in_words(self.last_kind, self.last_data)}, {_age(now_s - self.last_at_s)} ago"
        return f"{self.run}  {state}, {self.num_events} events, {last}"


def run_statuses(state: Path) -> list[RunStatus]:
    """Every run whose journal lies under `state`, the one with the newest event first."""
    statuses = [_status(path, state) for path in _journals(state)]
    return sorted(statuses, key=lambda status: (-status.last_at_s, status.run))


def main(argv: Sequence[str]) -> int:
    """Command line of `vibeserve status`."""
    parser = VerbParser("status", description="How far the runs of this repository are.")
    parser.add_argument(
        "--dir", metavar="DIR", help="project folder (default: the repository's root, else the working directory)"
    )
    arguments = parser.parse_args(argv)
    state = state_dir(_project(arguments.dir))
    statuses = run_statuses(state)
    if arguments.is_json:
        document = {"schema_version": 1, "runs": to_data(statuses), "leases": lease_rows(lease_dir())}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return 0
    told = [[status.line(now_s=time.time()), *(row.line() for row in status.spent)] for status in statuses]
    lines = [*(line for lines in told for line in lines), *lease_lines(lease_dir())]
    sys.stdout.write("\n".join(lines or [f"no run in {state}; start one with `vibeserve +target=NAME`"]) + "\n")
    return 0


def _project(declared: str | None) -> Path:
    """As declared; found in the same way as a run finds it; relative where that is the working directory."""
    if declared is None:
        root = project_root()
        return Path() if root == Path.cwd() else root
    if not Path(declared).is_dir():
        why = "a file, no folder" if Path(declared).exists() else "no such folder"
        raise SpecError(f"status: --dir {declared}: {why}", hint="name the folder that holds .vibeserve")
    return Path(declared)


def _journals(state: Path) -> list[Path]:
    """Journals under the state folder; workspaces and checked-out trees below a run are not searched."""
    found: list[Path] = []
    for folder, folders, files in os.walk(state):
        if "journal.jsonl" in files:
            found.append(Path(folder) / "journal.jsonl")
            folders.clear()
    return sorted(found)


def _status(path: Path, state: Path) -> RunStatus:
    run = path.parent.relative_to(state).as_posix()
    try:
        events: list[Event] = read_events(path)
    except JournalError as error:
        fault = str(error).splitlines()[0]
        return RunStatus(
            run=run, num_events=0, last_kind="", last_at_s=path.stat().st_mtime, fault=fault, state="unreadable"
        )
    owner = living_owner(path.parent)
    if not events:
        return RunStatus(
            run=run, num_events=0, last_kind="", last_at_s=path.stat().st_mtime, owner=owner,
            state="running" if owner else "stopped",
        )  # fmt: skip
    last = events[-1]
    return RunStatus(
        run=run, num_events=len(events), last_kind=last.kind, last_at_s=last.time_s, last_data=last.data, owner=owner,
        state=_state(events, is_owned=owner is not None), spent=spent_rows(events),
    )  # fmt: skip


def _state(events: Sequence[Event], *, is_owned: bool) -> str:
    if is_owned:
        return "paused" if steering_of(events).paused else "running"
    return "finished" if any(event.kind == "packaged" for event in events) else "stopped"


def spent_rows(events: Sequence[Event]) -> tuple[SpentBy, ...]:
    """What agents spent, by round, role and model, in the order of the rounds. A call's key names its round."""
    groups: dict[tuple[int, str, str], list[Any]] = {}
    for event in events:
        if event.kind == "spend":
            named = re.match(r"[rp](\d+)", event.data["key"])
            key = (int(named[1]) if named else 0, event.data["role"], event.data["model"])
            groups.setdefault(key, []).append(event.data)
    return tuple(
        SpentBy(
            round=number, role=role, model=model, num_requests=len(rows),
            tokens=sum(row["usage"]["input_tokens"] + row["usage"]["output_tokens"] for row in rows),
            usd=None if any(row["usd"] is None for row in rows) else sum(row["usd"] for row in rows),
        )
        for (number, role, model), rows in sorted(groups.items())
    )  # fmt: skip


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _in_words(kind: str, data: Any) -> str:
    """What an event of a run's journal means. One that this version does not know is shown as it is."""
    known = data if isinstance(data, dict) else {}
    if kind == "tier":
        return f"wall chosen (tier {data})"
    if kind == "round" and isinstance(known.get("record"), dict):
        record, step = known["record"], known.get("step")
        where = f" upon {step.get('parent')}" if isinstance(step, dict) else ""
        return f"round {record.get('number')}{where} ended: {record.get('outcome')}"
    if kind == "move" and isinstance(known.get("rounds"), list):
        return f"move {known.get('number')}: {known.get('why')}, {len(known['rounds'])} rounds planned"[:_MAX_TEXT]
    if kind == "certified":
        return "certified" if known.get("passed") else "certification ended: not passed"
    if kind == CONTROL_EVENT and isinstance(known.get("arguments"), dict):
        refused = f": refused: {known.get('refused')}" if known.get("refused") else ""
        return f"{told(str(known.get('command')), known['arguments'])}{refused}"[:_MAX_TEXT]
    if kind == BACKLOG:
        return f"backlog: {known.get('item')} {known.get('state')}: {known.get('title')}"[:_MAX_TEXT]
    if kind in _WORDS:
        words, key = _WORDS[kind]
        return f"{words}: {str(known[key])[:_MAX_TEXT]}" if known.get(key) else words
    return f"{kind}{_facts(data)}"


_WORDS = {
    "opened": ("run started", ""),
    "search_ended": ("search ended", "why"),
    "synthesized": ("winner chosen", "winner"),
    "packaged": ("artifact written", "path"),
    "note": ("note changed", "text"),
    "steerable": ("search can be steered", ""),
}
"""event -> what it means, and the key of its data that says more"""


def _facts(data: Any) -> str:
    if not isinstance(data, dict):
        return ""
    facts = [f"{key}={value}" for key, value in data.items() if isinstance(value, str | int | float)]
    text = " ".join(facts)
    return f": {text[:_MAX_TEXT]}" if text else ""
