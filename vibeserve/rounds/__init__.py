"""The inner loop: implement, screen, measure beside the incumbent, judge, decide. One round leaves one record."""

from vibeserve.rounds.measuring import MAX_TRADE, Ground, guards_of, implied_guards
from vibeserve.rounds.nouns import Checkpoint, RoundResult, Team
from vibeserve.rounds.offering import (
    Prepared,
    commit,
    commit_seed,
    count_lines,
    expected_factor,
    fresh_workspace,
    origin_of,
    prepare,
    workspace_of,
)
from vibeserve.rounds.running import given_for, keep_patch, run_round, tried_folder

__all__ = [
    "MAX_TRADE",
    "Checkpoint",
    "Ground",
    "Prepared",
    "RoundResult",
    "Team",
    "commit",
    "commit_seed",
    "count_lines",
    "expected_factor",
    "fresh_workspace",
    "given_for",
    "guards_of",
    "implied_guards",
    "keep_patch",
    "origin_of",
    "prepare",
    "run_round",
    "tried_folder",
    "workspace_of",
]
