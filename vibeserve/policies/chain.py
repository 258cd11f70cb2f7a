"""Policies that extend one checkpoint at a time: greedy, which pivots at a plateau, and the control arm."""

from __future__ import annotations

from vibeserve.policies.nouns import Extension, Move, Stop
from vibeserve.policies.tree import SearchTree, ideas_of

FAMILY, CHECKPOINT = "another family of ideas", "another checkpoint"


def plateau(patience: int, *, what: str = "rounds", pivots: int = 0) -> Stop:
    """The end of a search that stands still."""
    tried = f", {pivots} {'pivot' if pivots == 1 else 'pivots'} included" if pivots else ""
    return Stop(why=f"plateau: {patience} {what} in a row without a gain{tried}")


class GreedyPolicy:
    """The incumbent is extended; whatever loses is left behind, and the incumbent is where the next step starts.

    After `patience` rounds in a row without a gain it pivots before it stops: to ideas of another family than those
    that just lost, then to the best checkpoint beside the incumbent; each for `patience` more rounds.
    """

    name = "greedy"
    has_branches = False

    def __init__(self, *, patience: int, pivots: int) -> None:
        self._patience = patience
        self._pivots = pivots

    def next_move(self, tree: SearchTree, *, num_rounds_left: int) -> Move | Stop:
        is_patient = tree.num_moves_without_gain < self._patience
        if is_patient and (tree.incumbent, ()) not in tree.exhausted:
            return Move(extensions=(Extension(parent=tree.incumbent),))
        pivots = len({pivot.split(":")[0] for pivot in tree.pivots})
        return self._pivoted(tree) or (Stop(why="") if is_patient else plateau(self._patience, pivots=pivots))

    def _pivoted(self, tree: SearchTree) -> Move | None:
        """The pivot that is under way, or the next one; None where none is left."""
        lost = tree.without_gain()
        ideas = ideas_of(lost[: self._patience])
        options = [(FAMILY, tree.incumbent, ideas)] if ideas else []
        options += [(CHECKPOINT, node.id, ()) for node in tree.within_reach()[1:2] if lost]
        for kind, parent, avoided in options[: self._pivots]:
            used = sum(pivot.startswith(kind) for pivot in tree.pivots)
            if used < self._patience and (parent, avoided) not in tree.exhausted:
                return Move(extensions=(Extension(parent=parent, avoided=avoided),), why=f"{kind}: {parent}")
        return None


class RandomPolicy:
    """The control arm: the incumbent, until patience ends. What is tried upon it is drawn by the planner."""

    name = "random"
    has_branches = False

    def __init__(self, *, patience: int) -> None:
        self._patience = patience

    def next_move(self, tree: SearchTree, *, num_rounds_left: int) -> Move | Stop:
        if tree.num_moves_without_gain >= self._patience:
            return plateau(self._patience)
        if (tree.incumbent, ()) in tree.exhausted:
            return Stop(why="")
        return Move(extensions=(Extension(parent=tree.incumbent),))
