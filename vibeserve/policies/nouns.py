"""What a search policy is given and what it answers: nodes that were measured, moves, the protocol."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from vibeserve.policies.tree import SearchTree


@dataclass(frozen=True, kw_only=True)
class Extension:
    """Try something upon one checkpoint."""

    parent: str
    """candidate id"""
    num_proposals: int = 1
    avoided: tuple[str, ...] = ()
    """cards whose family of ideas is not to be proposed: those that relieve nothing but what these relieve; or titles,
    where an agent has the ideas"""


@dataclass(frozen=True, kw_only=True)
class Move:
    """What is tried next. `why` is empty for a step straight on from the incumbent."""

    extensions: tuple[Extension, ...]
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Stop:
    why: str
    """empty: nothing is left to propose, and the planner says why"""


class SearchPolicy(Protocol):
    """Pure: the same tree gives the same answer, so a search that was interrupted goes on as it would have."""

    @property
    def name(self) -> str: ...

    @property
    def has_branches(self) -> bool:
        """It extends several checkpoints at once: a planner is given a branch's history instead of the whole one."""
        ...

    def next_move(self, tree: SearchTree, *, num_rounds_left: int) -> Move | Stop:
        """Which checkpoints to extend with how many proposals; or why the search ends. At least one round is left."""
        ...
