"""What a search knows beside its measurements: ideas, notes, constraints, and how good forecasts were. All of it is a
view of the journal."""

from __future__ import annotations

from vibeserve.planning.admission import refuse_unsuitable, ruled_out
from vibeserve.planning.backlog import (
    BACKLOG,
    FRAMEWORK,
    PERSON,
    PLANNER,
    Backlog,
    Change,
    Item,
    ItemState,
    backlog_of,
)
from vibeserve.planning.book import PlanningBook
from vibeserve.planning.calibration import calibration_of, calibration_text, scored, scored_text
from vibeserve.planning.constraints import Constraints
from vibeserve.planning.digest import backlog_lines, item_line, note_lines
from vibeserve.planning.inheriting import Inherited, inherit
from vibeserve.planning.likeness import alike, assembly_key, keys_of, like_abandoned, likeness
from vibeserve.planning.memory import NOTE, Memory, NoteChange, memory_of
from vibeserve.planning.settling import settled

__all__ = [
    "BACKLOG",
    "FRAMEWORK",
    "NOTE",
    "PERSON",
    "PLANNER",
    "Backlog",
    "Change",
    "Constraints",
    "Inherited",
    "Item",
    "ItemState",
    "Memory",
    "NoteChange",
    "PlanningBook",
    "alike",
    "assembly_key",
    "backlog_lines",
    "backlog_of",
    "calibration_of",
    "calibration_text",
    "inherit",
    "item_line",
    "keys_of",
    "like_abandoned",
    "likeness",
    "memory_of",
    "note_lines",
    "refuse_unsuitable",
    "ruled_out",
    "scored",
    "scored_text",
    "settled",
]
