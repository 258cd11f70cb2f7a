"""The checkpoints of a run as a graph, for whoever draws it: from the journal alone."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from vibeserve.core.documents import from_data
from vibeserve.core.nouns import RatioInterval, Round
from vibeserve.policies.tree import Node, SearchTree, Step


@dataclass(frozen=True, kw_only=True)
class Edge:
    """A candidate and what it started from."""

    parent: str
    child: str
    ratio: float
    """of the headline, child over parent"""
    ci_low: float | None
    ci_high: float | None
    """None where the two were never measured beside each other"""


@dataclass(frozen=True, kw_only=True)
class SearchGraph:
    """Nodes in the order of their rounds. `winning` are those on the way from the seed to the last incumbent."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    incumbent: str
    winning: tuple[str, ...]


def search_graph(rounds: Iterable[Any]) -> SearchGraph:
    """The graph of the journal's `round` events' data, in order. What a gate refused is not in it."""
    tree = SearchTree()
    measured: dict[str, RatioInterval | None] = {}
    for data in rounds:
        record = from_data(Round, data["record"])
        step = from_data(Step, data["step"]) if data.get("step") else None
        if record.candidate is not None:
            headline = record.decision.headline if record.decision is not None else None
            interval = step.against_parent if step is not None else headline
            measured[record.candidate.candidate_id] = interval
        tree.add(record, step)
    edges = tuple(
        _edge(node, tree.nodes[node.parent], measured.get(node.id)) for node in tree.nodes.values() if node.parent
    )
    winning = tuple(node.id for node in tree.path(tree.incumbent))
    return SearchGraph(nodes=tuple(tree.nodes.values()), edges=edges, incumbent=tree.incumbent, winning=winning)


def _edge(node: Node, parent: Node, interval: RatioInterval | None) -> Edge:
    ratio = interval.ratio if interval is not None else math.exp(node.log_gain - parent.log_gain)
    low, high = (interval.ci_low, interval.ci_high) if interval is not None else (None, None)
    return Edge(parent=parent.id, child=node.id, ratio=ratio, ci_low=low, ci_high=high)
