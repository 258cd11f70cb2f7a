"""The live view of a run on a terminal: rounds, incumbent, backlog, agent, spend, what is left."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vibeserve.core.paths import state_dir
from vibeserve.journal import Event, JournalError, read_events
from vibeserve.lease import living_owner
from vibeserve.status.documents import RunStatus
from vibeserve.status.reading import read_status
from vibeserve.status.text import (
    OWNED,
    ROUND_HEAD,
    call_lines,
    doing,
    head_line,
    incumbent_text,
    round_cells,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

MAX_ROUNDS, MAX_ITEMS = 8, 3
READ_S = 4.0
"""between two looks at a run's folder"""


def view(status: RunStatus, *, now_s: float) -> RenderableType:
    """The picture of one moment."""
    from rich.console import Group
    from rich.text import Text

    lines = [Text(head_line(status, now_s=now_s), style="bold", no_wrap=True, overflow="ellipsis")]
    facts: list[str] = [f"now       {doing(status)}"] if status.step and status.state in OWNED else []
    if status.incumbent is not None:
        facts.append(f"incumbent {incumbent_text(status.incumbent)}")
    if status.eta is not None:
        facts.append(f"left      {status.eta.line()}")
    if status.spent_in_all is not None and status.spent_in_all.tokens:
        facts.append(f"spent     {status.spent_in_all.tokens} tokens, {status.spent_in_all.usd:.4f} USD")
    items = status.backlog.top[:MAX_ITEMS] if status.backlog else ()
    facts += [f"idea      {item.item} {item.state.replace('_', ' ')}: {item.title}" for item in items]
    facts += [f"waits     {waiting.what}: {waiting.text}" for waiting in status.waits]
    facts += call_lines(status, now_s=now_s)
    body = [Text(line, no_wrap=True, overflow="ellipsis") for line in facts]
    return Group(*lines, *([_rounds(status)] if status.rounds else []), *body)


def _rounds(status: RunStatus) -> RenderableType:
    from rich.table import Table

    has_branches = any(row.branch for row in status.rounds)
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="dim")
    heads = [head for head in ROUND_HEAD if has_branches or head != "branch"]
    shown = [(row, dict(zip(ROUND_HEAD, round_cells(row), strict=True))) for row in status.rounds[-MAX_ROUNDS:]]
    for head in heads:
        # what is narrow stays whole; only the proposal's title gives way
        width = None if head == "proposal" else max(len(head), *(len(cells[head]) for _, cells in shown))
        justify: Literal["right", "left"] = "right" if head in ("round", "from", "s", "attempts") else "left"
        table.add_column(head, justify=justify, no_wrap=True, overflow="ellipsis", min_width=width)
    for row, cells in shown:
        style = "green" if row.is_leading else "red" if row.outcome in ("crashed", "timed_out", "infra") else ""
        table.add_row(*(_plain(cells[head]) for head in heads), style=style)
    return table


def _plain(cell: str) -> RenderableType:
    """Text of a run is no markup."""
    from rich.text import Text

    return Text(cell)


@dataclass(kw_only=True)
class Watching:
    """Draws a run again and again. It looks into the run's folder only every `READ_S`, and reads the journal only where
    it grew: while something is measured nothing is. `find` names the run's folder, None while there is none."""

    find: Callable[[], Path | None]
    state: Path
    monotonic: Callable[[], float] = time.monotonic
    status: RunStatus | None = None
    _folder: Path | None = None
    _read_at_s: float = -READ_S
    _events: list[Event] | None = None
    _size: int = -1

    def __call__(self) -> RenderableType | None:
        self.look()
        return None if self.status is None else view(self.status, now_s=time.time())

    def look(self) -> RunStatus | None:
        """The newest status; as old as `READ_S` at most."""
        now_s = self.monotonic()
        if now_s - self._read_at_s >= READ_S:
            self._read_at_s = now_s
            self._folder = self._folder or self.find()
            if self._folder is not None and (self._folder / "journal.jsonl").is_file():
                self.status = read_status(self._folder, state=self.state, events=self._read(self._folder))
        return self.status

    def _read(self, folder: Path) -> list[Event] | None:
        """The journal's events; None where it is damaged, which the reader of the status finds out and tells."""
        path = folder / "journal.jsonl"
        size = path.stat().st_size
        if size != self._size:
            try:
                self._events, self._size = read_events(path), size
            except JournalError:
                return None
        return self._events


def own_run(project: Path) -> Watching:
    """The run that this very process carries out, from when it has begun."""
    state = state_dir(project)

    def find() -> Path | None:
        for folder in sorted((state / "runs").glob("*")):
            owner = living_owner(folder)
            if owner is not None and owner.is_local and owner.pid == os.getpid():
                return folder
        return None

    return Watching(find=find, state=state)
