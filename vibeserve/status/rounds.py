"""The rounds of a run as its journal tells them, and which checkpoint each one started from.

Read by hand and forgivingly: what is shown of a run must not fail because of a record that another version wrote.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vibeserve.core.nouns import ActivationState
from vibeserve.journal import Event

LEADING = ("baseline", "accepted")
"""outcomes after which a round's candidate is the incumbent"""


@dataclass(frozen=True, kw_only=True)
class RoundRow:
    """One finished round."""

    number: int
    branch: str = ""
    """letter of its line of checkpoints; empty where the search has one line"""
    outcome: str
    reason: str = ""
    title: str = ""
    """of the proposal; empty for round 0"""
    card: str = ""
    hypothesis: str = ""
    evidence: str = ""
    """what the proposal said would show that its mechanism works"""
    activation: str = ""
    """whether the framework's profiler saw the new path run; empty where it was not asked"""
    falsification: str = ""
    forecast_ratio: float | None = None
    ratio: float | None = None
    """measured headline ratio against the candidate of round `against`; above 1 is better"""
    ci_low: float | None = None
    ci_high: float | None = None
    seconds: float = 0.0
    attempts: int = 1
    candidate: str = ""
    commit: str = ""
    parent: int | None = None
    """round whose checkpoint it started from; None for round 0"""
    against: int | None = None
    """round that it was measured beside: the incumbent's, or on a branch that never met the incumbent the parent's"""
    is_kept: bool = False
    """it left a checkpoint that later rounds may start from"""
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
    def is_unactivated(self) -> bool:
        """Nothing of what it proposed was seen to run: it tests no hypothesis."""
        return self.activation == ActivationState.NOT_ACTIVATED.value

    @property
    def is_leading(self) -> bool:
        """It became the incumbent."""
        return self.outcome in LEADING


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
            rows.append(_placed(_row(record, event.data), entry=event.data, before=rows))
    lanes = lanes_of(rows)
    if not any(lanes.values()):
        return tuple(rows)
    return tuple(replace(row, branch=_letters(lanes[row.number])) for row in rows)


def lanes_of(rows: Sequence[RoundRow]) -> dict[int, int]:
    """Lane by round: the first checkpoint from another one goes on in its lane, a further one opens a lane."""
    lanes: dict[int, int] = {}
    continued: set[int] = set()
    for row in rows:
        inherited = lanes.get(row.parent, 0) if row.parent is not None else 0
        is_new = row.is_kept and row.parent in continued
        lanes[row.number] = max(lanes.values(), default=-1) + 1 if is_new else inherited
        if row.is_kept and row.parent is not None:
            continued.add(row.parent)
    return lanes


def incumbent_of(rows: Sequence[RoundRow], *, winner: str = "") -> RoundRow | None:
    """The round whose candidate is ahead: `winner`, a commit or a candidate's name, where one was chosen; else the one
    that became the incumbent last."""
    chosen = [row for row in rows if row.is_kept and winner and winner in (row.commit, row.candidate)]
    leading = chosen or [row for row in rows if row.is_leading]
    return leading[-1] if leading else None


def checkpoint_graph(rows: Sequence[RoundRow], *, winner: str = "") -> tuple[Node, ...]:
    """Every round with its parent and its cumulative ratio against round 0.

    An edge leads from the checkpoint that a round started from: the recorded one, else the incumbent of that time
    (`RoundRow.parent`). A ratio is that of the round it was measured beside, times its own. Intervals
    of a chain add up in quadrature of their halves on the log scale, as independent measurements do; these numbers
    steer and are never quoted.
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
        before = nodes.get(row.against) if row.against is not None else None
        ratio, low, high = _cumulative(row, before)
        nodes[row.number] = Node(
            round=row.number, parent=row.parent, outcome=row.outcome, branch=row.branch, is_kept=row.is_kept,
            is_on_path=False, ratio=ratio, ci_low=low, ci_high=high,
        )  # fmt: skip
    return list(nodes.values())


def _cumulative(row: RoundRow, before: Node | None) -> tuple[float | None, float | None, float | None]:
    if row.parent is None:
        return (1.0, 1.0, 1.0) if row.is_leading else (None, None, None)
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


def _placed(row: RoundRow, *, entry: Mapping[str, Any], before: Sequence[RoundRow]) -> RoundRow:
    """With the round that it started from, and the one that it was measured beside."""
    if not before:
        return row
    step = _object(entry.get("step"))
    named = step.get("parent") or entry.get("parent")
    found = [each.number for each in before if named and named in (each.commit, each.candidate)]
    leading = [each.number for each in before if each.is_leading]
    incumbent = leading[-1] if leading else None
    parent = found[-1] if found else incumbent
    if row.ratio is not None:
        return replace(row, parent=parent, against=incumbent)
    beside = _object(step.get("against_parent"))
    return replace(
        row, parent=parent, against=parent, ratio=_number(beside.get("ratio")), ci_low=_number(beside.get("ci_low")),
        ci_high=_number(beside.get("ci_high")),
    )  # fmt: skip


def _letters(lane: int) -> str:
    """`a` to `z`, then `aa`."""
    return _letters(lane // 26 - 1) + chr(ord("a") + lane % 26) if lane >= 26 else chr(ord("a") + lane)


def _row(record: Mapping[str, Any], entry: Mapping[str, Any]) -> RoundRow:
    proposal, candidate = _object(record.get("proposal")), _object(record.get("candidate"))
    headline = _object(_object(record.get("decision")).get("headline"))
    spent = _object(entry.get("spent"))
    refusals = _object(record.get("verdict")).get("refusals")
    spans = {str(name): _number(share) for name, share in _object(record.get("spans")).items()}
    return RoundRow(
        number=int(record["number"]), outcome=str(record.get("outcome", "")), reason=str(record.get("reason", "")),
        title=str(proposal.get("title", "")), card=str(proposal.get("card", "")),
        hypothesis=str(proposal.get("hypothesis", "")), evidence=str(proposal.get("activation_evidence", "")),
        activation=str(_object(record.get("activation")).get("state", "")),
        falsification=str(proposal.get("falsification", "")), forecast_ratio=_number(proposal.get("forecast_ratio")),
        ratio=_number(headline.get("ratio")), ci_low=_number(headline.get("ci_low")),
        ci_high=_number(headline.get("ci_high")), seconds=_number(record.get("seconds")) or 0.0,
        attempts=int(_number(record.get("attempts")) or 0), commit=str(candidate.get("commit", "")),
        candidate=str(candidate.get("candidate_id", "")),
        is_kept=record.get("outcome") in LEADING or bool(entry.get("checkpoint") or entry.get("kept")),
        origin=str(candidate.get("origin", "")),
        refusals=tuple(
            f"{each.get('gate')}/{each.get('reason_class')}: {each.get('text')}"
            for each in map(_object, refusals if isinstance(refusals, list) else ())
        ),
        spans={name: share for name, share in spans.items() if share is not None},
        device_s=_number(spent.get("windows")) or 0.0,
        remark=str(record.get("analysis") or record.get("remark") or ""),
    )  # fmt: skip


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if is_number else None
