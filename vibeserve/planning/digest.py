"""Planning state in a few lines: for a planner's prompt and for a terminal."""

from __future__ import annotations

from collections.abc import Collection

from vibeserve.planning.backlog import Backlog, Item, ItemState
from vibeserve.planning.memory import Memory

MAX_LINE_CHARS, MAX_NOTE_LINE_CHARS = 140, 240
MAX_ITEMS: tuple[tuple[ItemState, int], ...] = ((ItemState.ABANDONED, 4), (ItemState.PARKED, 3), (ItemState.OPEN, 3))
"""the newest of each; what a prompt has no room for goes from the front"""
MAX_NOTES = 4


def backlog_lines(backlog: Backlog, *, told: Collection[int] = ()) -> list[str]:
    """Ideas that a planner should know of. Those that were settled in a round of `told` are left out: the history has
    them."""
    lines: list[str] = []
    for state, max_items in MAX_ITEMS:
        untold = [item for item in backlog.of(state) if state is ItemState.OPEN or item.last.round not in told]
        lines += [item_line(item) for item in untold[-max_items:]]
    return lines


def item_line(item: Item, *, max_chars: int = MAX_LINE_CHARS) -> str:
    """`b3 parked in round 2: batch the rows: accuracy/wrong_tokens`"""
    why = f": {item.last.why}" if item.last.why else ""
    when = "" if item.state is ItemState.OPEN else f" in round {item.last.round}"
    return _cut(f"{item.id} {item.state.value}{when}: {item.title}{why}", max_chars)


def note_lines(memory: Memory) -> list[str]:
    """The newest notes, the newest last."""
    return [_cut(f"{note.note}: {note.text}", MAX_NOTE_LINE_CHARS) for note in list(memory.notes.values())[-MAX_NOTES:]]


def _cut(text: str, max_chars: int) -> str:
    return text if len(text) <= max_chars else text[: max_chars - 3] + "..."
