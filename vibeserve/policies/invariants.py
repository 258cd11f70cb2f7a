"""What holds before every move, whatever a policy decides."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vibeserve.core.nouns import Outcome, Round
from vibeserve.errors import InfraError
from vibeserve.policies.tree import KEPT, SearchTree

TOLERANCE = 1e-9
"""of a sum of logarithms that was added up twice"""


class BrokenInvariantError(InfraError):
    """The search's own state contradicts itself: nothing that would be tried now could be trusted."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """What the loop holds beside the tree."""

    incumbent: str
    commit: str
    """of the incumbent"""
    records: Sequence[Round]
    stored: Collection[str]
    """commits of the run's checkpoints"""
    workspaces: Mapping[str, Path]
    """of every checkpoint that may be extended, by candidate id"""


def check_tree(tree: SearchTree, held: Held) -> None:
    """Raise BrokenInvariantError with everything that does not hold."""
    problems = [*_of_incumbent(tree, held), *_of_chain(tree, held), *_of_nodes(tree, held), *_of_workspaces(held)]
    if problems:
        raise BrokenInvariantError(
            f"the search's state contradicts itself: {problems[0]}"
            + "".join(f"\n  {problem}" for problem in problems[1:])
            + "\nnext: keep the run's folder and report it; the best checkpoint is certified"
        )


def _of_incumbent(tree: SearchTree, held: Held) -> list[str]:
    if tree.incumbent != held.incumbent or tree.incumbent not in tree.nodes:
        return [f"the incumbent is {held.incumbent}, by the journal it is {tree.incumbent or 'none'}"]
    found = [] if held.commit in held.stored else [f"the incumbent's commit {held.commit[:12]} is not in the store"]
    record = next((each for each in held.records if _id(each) == held.incumbent), None)
    if record is None or record.outcome not in KEPT or record.decision is None or not record.decision.accepted:
        found.append(f"no accepted round offered the incumbent {held.incumbent}")
    elif record.verdict is None or not record.verdict.passed:
        found.append(f"the gates did not pass the incumbent {held.incumbent}")
    return found


def _of_chain(tree: SearchTree, held: Held) -> list[str]:
    """Every accepted candidate was measured beside the incumbent of its time, and the gains add up."""
    found, gain = [], 0.0
    for record in held.records:
        headline = record.decision.headline if record.decision is not None else None
        name = _id(record)
        if record.outcome is Outcome.ACCEPTED:
            if headline is None:
                found.append(f"{name} was accepted without a measurement beside the incumbent")
                continue
            gain += math.log(headline.ratio)
            if not headline.ci_low <= headline.ratio <= headline.ci_high:
                found.append(f"the ratio of {name} lies outside its interval")
        if record.outcome in KEPT and name in tree.nodes and abs(tree.nodes[name].log_gain - gain) > TOLERANCE:
            found.append(
                f"the gain of {name}, {tree.nodes[name].log_gain:.4f}, is not the sum of the ratios, {gain:.4f}"
            )
    return found


def _of_nodes(tree: SearchTree, held: Held) -> list[str]:
    refused = {_id(record) for record in held.records if record.is_refused or record.outcome is Outcome.INFRA}
    found = [f"{name} was refused, and is ranked" for name in tree.nodes if name in refused]
    for node in tree.nodes.values():
        parent = tree.nodes.get(node.parent)
        if node.parent and (parent is None or parent.number >= node.number):
            found.append(f"{node.id} started from {node.parent}, which is no checkpoint before it")
    return found


def _of_workspaces(held: Held) -> list[str]:
    owners: dict[Path, str] = {}
    found = []
    for name, workspace in held.workspaces.items():
        other = owners.setdefault(workspace, name)
        if other != name:
            found.append(f"{other} and {name} share the workspace {workspace.name}")
    return found


def _id(record: Round) -> str:
    return record.candidate.candidate_id if record.candidate is not None else ""
