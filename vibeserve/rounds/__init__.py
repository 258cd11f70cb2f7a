"""The inner loop: implement, screen, measure beside the incumbent, judge, decide. One round leaves one record."""

from vibeserve.rounds.measuring import MAX_TRADE, guards_of, implied_guards
from vibeserve.rounds.nouns import Checkpoint, RoundResult, Team
from vibeserve.rounds.offering import commit, count_lines, expected_factor, origin_of
from vibeserve.rounds.running import run_round, tried_folder

__all__ = [
    "MAX_TRADE",
    "Checkpoint",
    "RoundResult",
    "Team",
    "commit",
    "count_lines",
    "expected_factor",
    "guards_of",
    "implied_guards",
    "origin_of",
    "run_round",
    "tried_folder",
]
