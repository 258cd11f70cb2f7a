"""Beam search: the best checkpoints are extended side by side, losing ones among them."""

from __future__ import annotations

from vibeserve.policies.chain import plateau
from vibeserve.policies.nouns import Extension, Move, Stop
from vibeserve.policies.tree import Node, SearchTree


class BeamPolicy:
    """`width` branches: the incumbent, and the best of the other candidates that passed every gate, whether they are
    slower or break a guard (Pareto checkpoints); each gets `branching` proposals a move.

    A candidate that loses may be the half of a pair that wins, so it stays a branch while its own extensions gain; a
    branch whose last `2 * branching` extensions lost is left, and the next best takes its place. The search ends after
    `patience` moves in a row without a new incumbent, or when no branch is left.
    """

    name = "beam"
    has_branches = True

    def __init__(self, *, width: int, branching: int, patience: int) -> None:
        self._width = width
        self._branching = branching
        self._patience = patience

    def next_move(self, tree: SearchTree, *, num_rounds_left: int) -> Move | Stop:
        if tree.num_moves_without_gain >= self._patience:
            return plateau(self._patience, what="moves")
        branches = [node for node in tree.within_reach() if self._is_open(node, tree)][: self._width]
        extensions: list[Extension] = []
        left = num_rounds_left
        for node in branches:
            num = min(self._branching, left)
            if num > 0:
                extensions.append(Extension(parent=node.id, num_proposals=num))
                left -= num
        if not extensions:
            return Stop(why="")
        return Move(extensions=tuple(extensions), why=f"branches {', '.join(each.parent for each in extensions)}")

    def _is_open(self, node: Node, tree: SearchTree) -> bool:
        if (node.id, ()) in tree.exhausted:
            return False
        return node.id == tree.incumbent or tree.losses_in_a_row(node.id) < 2 * self._branching
