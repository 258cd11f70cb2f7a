"""The outer loop of a run."""

from vibeserve.synthesis.running import synthesize
from vibeserve.synthesis.search import MOVE, SEARCH_ENDED, Entry, PlannedMove, PlannedRound, Search, keep_round, restore

__all__ = [
    "MOVE",
    "SEARCH_ENDED",
    "Entry",
    "PlannedMove",
    "PlannedRound",
    "Search",
    "keep_round",
    "restore",
    "synthesize",
]
