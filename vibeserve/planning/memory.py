"""Long-term memory: notes that every planner of a run reads, a view of the journal's `note` events."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from vibeserve.journal import Event
from vibeserve.planning.backlog import refuse_version

NOTE = "note"
"""event of the journal: one change of one note"""
ADD, EDIT, REMOVE = "add", "edit", "remove"
MAX_NOTE_CHARS = 500


@dataclass(frozen=True, kw_only=True)
class NoteChange:
    """Document: a note was added, edited or removed."""

    schema_version: int = 1
    note: str
    action: str
    """add, edit or remove"""
    text: str = ""
    """empty where it is removed"""
    who: str
    round: int
    request: int = 0
    """number of the request in `control/` that brought it; 0 = none"""


@dataclass(kw_only=True)
class Memory:
    """Notes by id that were not removed, with the change that wrote each last."""

    notes: dict[str, NoteChange] = field(default_factory=dict)
    num_added: int = 0
    requests: dict[int, str] = field(default_factory=dict)
    """request of `control/` -> note that it changed"""

    def take(self, change: NoteChange) -> None:
        """Count one more change."""
        if change.action == REMOVE:
            self.notes.pop(change.note, None)
        else:
            self.notes[change.note] = change
        self.num_added += change.action == ADD
        if change.request:
            self.requests[change.request] = change.note

    def next_id(self) -> str:
        return f"n{self.num_added + 1}"


def memory_of(events: Iterable[Event]) -> Memory:
    """The memory that a journal's events add up to. JournalError for a change of another version."""
    memory = Memory()
    for event in events:
        if event.kind == NOTE:
            refuse_version(event.data, what="a change of a note")
            memory.take(NoteChange(**event.data))
    return memory
