"""How the outer loop chooses: which checkpoints are extended next, when it pivots and when it stops."""

from __future__ import annotations

from collections.abc import Callable

from vibeserve.errors import SpecError
from vibeserve.policies.beam import BeamPolicy
from vibeserve.policies.chain import GreedyPolicy, RandomPolicy
from vibeserve.policies.graph import Edge, SearchGraph, search_graph
from vibeserve.policies.invariants import BrokenInvariantError, check_tree
from vibeserve.policies.nouns import Extension, Move, SearchPolicy, Stop
from vibeserve.policies.tree import Node, SearchTree, Step, Tried
from vibeserve.spec import Search

__all__ = [
    "BrokenInvariantError",
    "Edge",
    "Extension",
    "Move",
    "Node",
    "SearchGraph",
    "SearchPolicy",
    "SearchTree",
    "Step",
    "Stop",
    "Tried",
    "check_tree",
    "make_policy",
    "search_graph",
]


def make_policy(search: Search) -> SearchPolicy:
    """The declared policy. SpecError lists the valid ones."""
    policies: dict[str, Callable[[], SearchPolicy]] = {
        "greedy": lambda: GreedyPolicy(patience=search.patience, pivots=search.pivots),
        "beam": lambda: BeamPolicy(width=search.width, branching=search.branching, patience=search.patience),
        "random": lambda: RandomPolicy(patience=search.patience),
    }
    if search.policy not in policies:
        raise SpecError(f"search.policy: unknown policy '{search.policy}'", problems=[f"valid: {', '.join(policies)}"])
    return policies[search.policy]()
