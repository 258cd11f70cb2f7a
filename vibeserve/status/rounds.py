"""The rounds of a run as its journal tells them, and which checkpoint each one started from.

Read by hand and forgivingly: what is shown of a run must not fail because of a record that another version wrote.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vibeserve.journal import Event

KEPT = ("baseline", "accepted")
"""outcomes that leave a checkpoint which later rounds may start from"""


@dataclass(frozen=True, kw_only=True)
class RoundRow:
    """One finished round."""

    number: int
    branch: str = ""
    """of a search that follows several; empty where there is one"""
    outcome: str
    reason: str = ""
    title: str = ""
    """of the proposal; empty for round 0"""
    card: str = ""
    hypothesis: str = ""
    evidence: str = ""
    """what the proposal said would show that its mechanism works"""
    falsification: str = ""
    forecast_ratio: float | None = None
    ratio: float | None = None
    """measured headline ratio against the checkpoint that it started from; above 1 is better"""
    ci_low: float | None = None
    ci_high: float | None = None
    seconds: float = 0.0
    attempts: int = 1
    commit: str = ""
    parent: int | None = None
    """round whose checkpoint it started from; None for round 0"""
    origin: str = ""
    """who wrote the candidate"""
    refusals: tuple[str, ...] = ()
    spans: dict[str, float] = field(default_factory=dict)
    """share of the requests' wall time by span, 0 to 1"""
    device_s: float = 0.0
    """seconds in which a contender served a timed load"""
    remark: str = ""
    """what agents said of the measurements, or of the candidate; it decides nothing"""

    @property
    def is_kept(self) -> bool:
        return self.outcome in KEPT


@dataclass(frozen=True, kw_only=True)
class Node:
    """A round in the graph of checkpoints."""

    round: int
    parent: int | None
    outcome: str
    branch: str
    is_kept: bool
    is_on_path: bool
    """it is the incumbent, or the incumbent comes from it"""
    ratio: float | None
    """cumulative, against round 0"""
    ci_low: float | None
    ci_high: float | None


def round_rows(events: Iterable[Event]) -> tuple[RoundRow, ...]:
    """Every finished round, in the order of the journal; records that cannot be read are left out."""
    rows: list[RoundRow] = []
    for event in events:
        record = event.data.get("record") if event.kind == "round" and isinstance(event.data, Mapping) else None
        if isinstance(record, Mapping) and isinstance(record.get("number"), int):
            rows.append(_with_parent(_row(record, event.data), entry=event.data, before=rows))
    return tuple(rows)


def incumbent_of(rows: Sequence[RoundRow], *, winner: str = "") -> RoundRow | None:
    """The kept round that is ahead: `winner`, a commit or a candidate's name, where one was chosen; else the one with
    the largest cumulative ratio, a later one where two are equal."""
    kept = [row for row in rows if row.is_kept]
    chosen = [row for row in kept if winner and winner in (row.commit, _candidate(row))]
    if chosen:
        return chosen[-1]
    totals = {node.round: node.ratio or 0.0 for node in _nodes(rows)}
    return max(kept, key=lambda row: (totals[row.number], row.number), default=None)


def checkpoint_graph(rows: Sequence[RoundRow], *, winner: str = "") -> tuple[Node, ...]:
    """Every round with its parent and its cumulative ratio against round 0.

    An edge leads from the checkpoint that a round started from: the recorded commit, else the incumbent of that time
    (`RoundRow.parent`). Intervals of a chain add up in quadrature of their halves on the log scale, as independent
    measurements do; these numbers steer and are never quoted.
    """
    found = incumbent_of(rows, winner=winner)
    parents = {row.number: row.parent for row in rows}
    path: set[int] = set()
    number = None if found is None else found.number
    while number is not None and number not in path:
        path.add(number)
        number = parents.get(number)
    return tuple(replace(node, is_on_path=node.round in path) for node in _nodes(rows))


def chain_of(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """From round 0 to the incumbent."""
    return tuple(node for node in nodes if node.is_on_path)


def _nodes(rows: Sequence[RoundRow]) -> list[Node]:
    nodes: dict[int, Node] = {}
    for row in rows:
        before = nodes.get(row.parent) if row.parent is not None else None
        ratio, low, high = _cumulative(row, before)
        nodes[row.number] = Node(
            round=row.number, parent=row.parent, outcome=row.outcome, branch=row.branch, is_kept=row.is_kept,
            is_on_path=False, ratio=ratio, ci_low=low, ci_high=high,
        )  # fmt: skip
    return list(nodes.values())


def _cumulative(row: RoundRow, before: Node | None) -> tuple[float | None, float | None, float | None]:
    if row.parent is None:
        return (1.0, 1.0, 1.0) if row.is_kept else (None, None, None)
    if before is None or not before.ratio or not row.ratio or row.ratio <= 0:
        return None, None, None
    total = before.ratio * row.ratio
    lows, highs = [(before.ci_low, before.ratio), (row.ci_low, row.ratio)], [
        (before.ci_high, before.ratio), (row.ci_high, row.ratio)
    ]  # fmt: skip
    return total, total * math.exp(-_quadrature(lows)), total * math.exp(_quadrature(highs))


def _quadrature(pairs: Sequence[tuple[float | None, float]]) -> float:
    """Of the distances, in logs, between a bound and its ratio; a missing bound adds nothing."""
    return math.hypot(*(math.log(bound / ratio) for bound, ratio in pairs if bound and bound > 0))


def _with_parent(row: RoundRow, *, entry: Mapping[str, Any], before: Sequence[RoundRow]) -> RoundRow:
    if not before:
        return row
    recorded = _parent_commit(entry)
    by_commit = [each.number for each in before if each.commit and each.commit == recorded]
    kept = [each.number for each in before if each.is_kept]
    parent = by_commit[-1] if by_commit else kept[-1] if kept else None
    return replace(row, parent=parent)


def _parent_commit(entry: Mapping[str, Any]) -> str:
    """The commit that a round says that it started from; empty where it says nothing."""
    for holder in (entry, entry["record"]):
        value = holder.get("parent")
        commit = value.get("commit") if isinstance(value, Mapping) else value
        if isinstance(commit, str) and commit:
            return commit
    return ""


def _row(record: Mapping[str, Any], entry: Mapping[str, Any]) -> RoundRow:
    proposal, candidate = _object(record.get("proposal")), _object(record.get("candidate"))
    headline = _object(_object(record.get("decision")).get("headline"))
    spent = _object(entry.get("spent"))
    refusals = _object(record.get("verdict")).get("refusals")
    spans = {str(name): _number(share) for name, share in _object(record.get("spans")).items()}
    return RoundRow(
        number=int(record["number"]), branch=str(entry.get("branch") or record.get("branch") or ""),
        outcome=str(record.get("outcome", "")), reason=str(record.get("reason", "")),
        title=str(proposal.get("title", "")), card=str(proposal.get("card", "")),
        hypothesis=str(proposal.get("hypothesis", "")), evidence=str(proposal.get("activation_evidence", "")),
        falsification=str(proposal.get("falsification", "")), forecast_ratio=_number(proposal.get("forecast_ratio")),
        ratio=_number(headline.get("ratio")), ci_low=_number(headline.get("ci_low")),
        ci_high=_number(headline.get("ci_high")), seconds=_number(record.get("seconds")) or 0.0,
        attempts=int(_number(record.get("attempts")) or 0), commit=str(candidate.get("commit", "")),
        origin=str(candidate.get("origin", "")),
        refusals=tuple(
            f"{each.get('gate')}/{each.get('reason_class')}: {each.get('text')}"
            for each in map(_object, refusals if isinstance(refusals, list) else ())
        ),
        spans={name: share for name, share in spans.items() if share is not None},
        device_s=_number(spent.get("windows")) or 0.0,
        remark=str(record.get("analysis") or record.get("remark") or ""),
    )  # fmt: skip


def _candidate(row: RoundRow) -> str:
    """`r02a1`: the last attempt of a round, which is its candidate."""
    return f"r{row.number:02d}a{row.attempts}"


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None
