"""What the page tells of the search: from the journal that an artifact ships, else from the manifest's rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vibeserve.core.manifest import Manifest, RoundEntry
from vibeserve.journal import Event
from vibeserve.report.profile import ProfileRow, profile_rows
from vibeserve.status import (
    LEADING,
    Node,
    RoundRow,
    SpentBy,
    SpentByRole,
    checkpoint_graph,
    incumbent_of,
    round_rows,
    spent_by_role,
    spent_rows,
)

MAX_CHANGES = 3
"""spans that are told of a round, those that changed most"""


@dataclass(frozen=True, kw_only=True)
class Hypothesis:
    """A proposal beside what became of it."""

    row: RoundRow
    seen: str
    """how the profile changed against the checkpoint that it started from; empty where nothing was profiled"""
    judgement: str
    """what the measurement makes of the forecast"""


@dataclass(frozen=True, kw_only=True)
class History:
    """The search as the page draws it."""

    rows: tuple[RoundRow, ...]
    nodes: tuple[Node, ...]
    spent: tuple[SpentBy, ...] = ()

    @property
    def hypotheses(self) -> list[Hypothesis]:
        """Of every round that proposed something."""
        by_number = {row.number: row for row in self.rows}
        return [
            Hypothesis(
                row=row, seen=_seen(row, by_number.get(row.parent) if row.parent is not None else None),
                judgement=_judgement(row),
            )
            for row in self.rows
            if row.title
        ]  # fmt: skip

    @property
    def roles(self) -> tuple[SpentByRole, ...]:
        """Totals by role."""
        return spent_by_role(self.spent)

    @property
    def profile(self) -> tuple[list[ProfileRow], list[ProfileRow]]:
        """(of the seed, of the incumbent); both empty where one of them was not profiled, or they are one."""
        last = incumbent_of(self.rows, winner=self._winner)
        first = self.rows[0] if self.rows else None
        if first is None or last is None or last.number == first.number or not (first.spans and last.spans):
            return [], []
        return profile_rows(first.spans), profile_rows(last.spans)

    @property
    def _winner(self) -> str:
        path = [node.round for node in self.nodes if node.is_on_path]
        return next((row.commit for row in self.rows if path and row.number == path[-1]), "")


def history_of(manifest: Manifest, events: Sequence[Event] = ()) -> History:
    """From the journal's events; where they hold no round that can be read, from the manifest alone."""
    rows = round_rows(events) or _rows_of(manifest)
    winner = next((event.data.get("winner", "") for event in events if event.kind == "synthesized"), "")
    return History(
        rows=rows, nodes=checkpoint_graph(rows, winner=str(winner)), spent=spent_rows(events)
    )  # fmt: skip


def _rows_of(manifest: Manifest) -> tuple[RoundRow, ...]:
    rows: list[RoundRow] = []
    for entry in manifest.rounds:
        leading = [row.number for row in rows if row.is_leading]
        before = leading[-1] if leading else None
        rows.append(replace(_row(entry), parent=before, against=before))
    return tuple(rows)


def _row(entry: RoundEntry) -> RoundRow:
    proposal, headline = entry.proposal, entry.headline
    return RoundRow(
        number=entry.number, outcome=entry.outcome.value, reason=entry.reason, commit=entry.commit,
        is_kept=entry.outcome.value in LEADING,
        title=proposal.title if proposal else "", card=proposal.card if proposal else "",
        hypothesis=proposal.hypothesis if proposal else "", spans=dict(entry.spans), seconds=entry.seconds,
        evidence=proposal.activation_evidence if proposal else "",
        activation=entry.activation.state.value if entry.activation else "",
        falsification=proposal.falsification if proposal else "",
        forecast_ratio=proposal.forecast_ratio if proposal else None,
        ratio=headline.ratio if headline else None, ci_low=headline.ci_low if headline else None,
        ci_high=headline.ci_high if headline else None,
        refusals=tuple(refusal.feedback for refusal in entry.refusals),
    )  # fmt: skip


def _seen(row: RoundRow, parent: RoundRow | None) -> str:
    if parent is None or not row.spans or not parent.spans:
        return ""
    changes = {name: row.spans.get(name, 0.0) - parent.spans.get(name, 0.0) for name in {*row.spans, *parent.spans}}
    most = sorted(changes, key=lambda name: (-abs(changes[name]), name))[:MAX_CHANGES]
    return ", ".join(f"{name} {parent.spans.get(name, 0.0):.0%} to {row.spans.get(name, 0.0):.0%}" for name in most)


def _judgement(row: RoundRow) -> str:
    """What a forecast is worth beside the measurement; the speed of wrong output tests nothing."""
    if row.refusals:
        return "not tested: a gate refused it"
    if row.ratio is None or row.ci_low is None or row.ci_high is None:
        return f"not tested: {row.outcome.replace('_', ' ')}"
    if row.is_unactivated:
        return "not activated: nothing of what it changes was seen to run"
    if not row.forecast_ratio or row.forecast_ratio == 1.0:
        return "nothing was forecast"
    if row.ci_low <= row.forecast_ratio <= row.ci_high:
        return "as forecast"
    return "less than forecast" if row.forecast_ratio > row.ci_high else "more than forecast"
