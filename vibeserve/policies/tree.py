"""The search so far as a tree: every measured candidate, the checkpoint that it started from, and its gain.

A fold over the rounds, in the order of the journal. What a gate refused is counted and never ranked: it is no node.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from vibeserve.core.nouns import Outcome, RatioInterval, Round

KEPT = (Outcome.BASELINE, Outcome.ACCEPTED)
MAX_LAG = math.log(2.0)
"""log-ratio behind the incumbent from which on a checkpoint is not extended: a chosen bound. One idea has to win back
what the checkpoint lost, and cards that win more than twice are rare"""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Document: where in the search a round stands. A round without one extended the incumbent of its time."""

    move: int
    """number of the move that it belongs to; rounds of one move were planned together"""
    parent: str
    """candidate that it started from"""
    against_parent: RatioInterval | None = None
    """of the headline, measured beside the parent; None where nothing was measured"""


@dataclass(frozen=True, kw_only=True)
class Node:
    """A candidate that passed every gate and was measured."""

    id: str
    number: int
    """of its round"""
    parent: str
    """empty for the seed"""
    log_gain: float
    """headline over the seed, as a log-ratio: along the parents, or beside the incumbent where that was measured"""
    outcome: Outcome
    card: str
    is_pareto: bool = False
    """better in the headline, and it breaks a guard"""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One round as a policy sees it."""

    number: int
    move: int
    parent: str
    outcome: Outcome
    card: str
    title: str = ""
    """of the proposal"""
    is_better: bool = False
    """than its parent, by the lower end of the interval"""


@dataclass(kw_only=True)
class SearchTree:
    """Nodes by candidate id, in the order in which they came."""

    nodes: dict[str, Node] = field(default_factory=dict)
    rounds: list[Tried] = field(default_factory=list)
    incumbent: str = ""
    exhausted: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)
    """(parent, avoided cards) upon which the planner has nothing left to propose. Not journalled: it is asked again"""
    pivots: list[str] = field(default_factory=list)
    """why the search changed its direction, since the last gain"""

    def add(self, record: Round, step: Step | None = None) -> None:
        """Count one more finished round."""
        parent = step.parent if step is not None else self.incumbent
        interval = step.against_parent if step is not None else None
        card = record.proposal.card if record.proposal is not None else ""
        headline = record.decision.headline if record.decision is not None else None
        if interval is None and parent == self.incumbent:
            interval = headline
        move = step.move if step is not None else self.num_moves + 1
        self.rounds.append(
            Tried(
                number=record.number, move=0 if record.outcome is Outcome.BASELINE else move, parent=parent, card=card,
                title=record.proposal.title if record.proposal is not None else "", outcome=record.outcome,
                is_better=interval is not None and interval.ci_low > 1,
            )
        )  # fmt: skip
        gain = self._gain(record, parent=parent, interval=interval, headline=headline)
        if gain is not None and record.candidate is not None:
            node = Node(
                id=record.candidate.candidate_id, number=record.number, parent=parent, log_gain=gain, card=card,
                outcome=record.outcome, is_pareto=gain > self.best_gain and record.outcome not in KEPT,
            )  # fmt: skip
            self.nodes[node.id] = node
        if record.outcome in KEPT and record.candidate is not None:
            self.incumbent = record.candidate.candidate_id
            self.pivots.clear()

    def _gain(
        self, record: Round, *, parent: str, interval: RatioInterval | None, headline: RatioInterval | None
    ) -> float | None:
        """None where the round left nothing that may be ranked."""
        if record.outcome is Outcome.BASELINE:
            return 0.0
        is_valid = record.verdict is not None and record.verdict.passed and record.outcome is not Outcome.INFRA
        if not is_valid:
            return None
        if headline is not None and self.incumbent in self.nodes:
            return self.nodes[self.incumbent].log_gain + math.log(headline.ratio)
        if interval is not None and parent in self.nodes:
            return self.nodes[parent].log_gain + math.log(interval.ratio)
        return None

    @property
    def best_gain(self) -> float:
        """The incumbent's."""
        return self.nodes[self.incumbent].log_gain if self.incumbent in self.nodes else 0.0

    @property
    def num_moves(self) -> int:
        return max((each.move for each in self.rounds), default=0)

    def without_gain(self) -> list[Tried]:
        """Rounds since the last accepted one; those that the machine spoilt say nothing and do not count."""
        found: list[Tried] = []
        for each in reversed(self.rounds):
            if each.outcome in KEPT:
                break
            if each.outcome is not Outcome.INFRA:
                found.append(each)
        return found[::-1]

    @property
    def num_moves_without_gain(self) -> int:
        return len({each.move for each in self.without_gain()})

    def ranked(self) -> list[Node]:
        """The incumbent, then every other node, the largest gain first; of equals the older one."""
        others = [node for node in self.nodes.values() if node.id != self.incumbent]
        others.sort(key=lambda node: (-node.log_gain, node.number))
        return [self.nodes[self.incumbent], *others] if self.incumbent in self.nodes else others

    def within_reach(self) -> list[Node]:
        """Of those, the ones that a single idea may bring ahead of the incumbent."""
        return [node for node in self.ranked() if node.log_gain > self.best_gain - MAX_LAG]

    def path(self, node: str) -> list[Node]:
        """From the seed to `node`."""
        found: list[Node] = []
        while node in self.nodes:
            found.append(self.nodes[node])
            node = self.nodes[node].parent
        return found[::-1]

    def history(self, node: str) -> list[int]:
        """Numbers of the rounds on the way to `node`, and of those that extended it."""
        numbers = {each.number for each in self.path(node)}
        return sorted(numbers | {each.number for each in self.rounds if each.parent == node})

    def losses_in_a_row(self, node: str) -> int:
        """Of the last rounds that extended `node`: those that were not better than it."""
        count = 0
        extending = [each for each in self.rounds if each.parent == node and each.outcome is not Outcome.INFRA]
        for each in reversed(extending):
            if each.is_better:
                break
            count += 1
        return count


def ideas_of(rounds: Sequence[Tried]) -> tuple[str, ...]:
    """What rounds tried, in order, each once: the names of their cards, or titles where nobody works from cards."""
    return tuple(dict.fromkeys(each.card or each.title for each in rounds if each.card or each.title))
