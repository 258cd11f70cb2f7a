"""How far a run is, what it found and what it cost: views of its folder, read without disturbing it."""

from __future__ import annotations

from vibeserve.status.documents import LeaseRow, RunState, RunStatus, StatusDocument
from vibeserve.status.reading import held_lines, read_status, run_statuses
from vibeserve.status.rounds import LEADING, Node, RoundRow, checkpoint_graph, incumbent_of, lanes_of, round_rows
from vibeserve.status.spending import SpentBy, SpentByRole, spent_by_role, spent_in_all, spent_rows
from vibeserve.status.text import brief_lines, head_line, page_lines

__all__ = [
    "LEADING",
    "LeaseRow",
    "Node",
    "RoundRow",
    "RunState",
    "RunStatus",
    "SpentBy",
    "SpentByRole",
    "StatusDocument",
    "brief_lines",
    "checkpoint_graph",
    "head_line",
    "held_lines",
    "incumbent_of",
    "lanes_of",
    "page_lines",
    "read_status",
    "round_rows",
    "run_statuses",
    "spent_by_role",
    "spent_in_all",
    "spent_rows",
]
