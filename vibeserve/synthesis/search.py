"""The state of a search: a fold over the journal's `round` and `move` events, and how it is added to."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field, replace
from typing import Any

from vibeserve.core.documents import from_data, to_data
from vibeserve.core.nouns import Outcome, Proposal, Round
from vibeserve.errors import InfraError
from vibeserve.journal import Journal
from vibeserve.planning import scored, scored_text
from vibeserve.policies import SearchTree, Step
from vibeserve.rounds import Checkpoint, RoundResult, Team, expected_factor, workspace_of
from vibeserve.rounds.telling import round_facts
from vibeserve.spec import ClockKind

SEARCH_ENDED = "search_ended"
"""event of the journal: why no further round was started"""
MOVE = "move"
"""event of the journal: rounds that were planned together, or a pivot, before any of them is carried out"""
MAX_INFRA_FAILURES = 2
"""rounds in a row that the machine may spoil before the run stops with an infrastructure error"""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Document: one round as the journal keeps it."""

    record: Round
    checkpoint: Checkpoint | None
    """of round 0 and of accepted rounds"""
    kept: Checkpoint | None = None
    """of a candidate that passed every gate and was measured, but did not become the incumbent"""
    step: Step | None = None
    """where in the search it stands; None: it extended the incumbent of its time, alone"""
    measurements: Any = None
    """windows by contender, facts of the machine, pairs that it spoilt"""
    spent: dict[str, float] = field(default_factory=dict)
    """seconds by activity (`core.spent`)"""
    num_discarded: int = 0
    """pairs of windows that were measured again"""


@dataclass(frozen=True, kw_only=True)
class PlannedRound:
    """One round of a move."""

    number: int
    parent: str
    """candidate that it starts from"""
    item: str = ""
    """of the backlog"""
    proposal: Proposal | None = None
    refused: Round | None = None
    """the round's record where it may not be tried at all"""


@dataclass(frozen=True, kw_only=True)
class PlannedMove:
    """Document: what is tried next, before any of it is carried out. A kill goes on with the rest of it."""

    schema_version: int = 1
    number: int
    why: str
    rounds: tuple[PlannedRound, ...]

    @property
    def is_journalled(self) -> bool:
        """A step straight on from the incumbent stands for itself: it is planned again after a kill."""
        return bool(self.why)


@dataclass(kw_only=True)
class Search:
    """State of the search."""

    entries: list[Entry] = field(default_factory=list)
    incumbent: Checkpoint | None = None
    noise_floor: float = 0.0
    tree: SearchTree = field(default_factory=SearchTree)
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)
    """every candidate that may be extended, by id"""
    pending: PlannedMove | None = None
    """the last journalled move, until all its rounds are there"""
    fault: str = ""
    """the invariant that ended it"""

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        kept = entry.checkpoint or entry.kept
        if kept is not None:
            self.checkpoints[kept.candidate.candidate_id] = kept
        if entry.checkpoint is not None:
            self.incumbent = entry.checkpoint
        if entry.record.outcome is Outcome.BASELINE and entry.record.decision is not None:
            self.noise_floor = entry.record.decision.noise_floor
        self.tree.add(entry.record, entry.step)
        if self.pending is not None and len(self.entries) > self.pending.rounds[-1].number:
            self.pending = None

    def plan(self, move: PlannedMove) -> None:
        """Count a journalled move."""
        self.pending = move
        self.tree.pivots.append(move.why)

    @property
    def num_infra(self) -> int:
        """Rounds in a row that ended as an infrastructure failure."""
        count = 0
        for entry in reversed(self.entries):
            if entry.record.outcome is not Outcome.INFRA:
                break
            count += 1
        return count


def restore(team: Team, journal: Journal) -> Search:
    """The search as the journal left it. A workspace that is gone is checked out again once it is needed."""
    search = Search()
    for event in journal.events():
        if event.kind == "round":
            search.add(_located(team, from_data(Entry, event.data)))
        elif event.kind == MOVE:
            search.plan(from_data(PlannedMove, event.data))
        elif event.kind == SEARCH_ENDED and event.data.get("incumbent"):
            # its state contradicted itself: what is certified was named then
            search.incumbent = search.checkpoints[event.data["incumbent"]]
            search.fault = event.data["why"]
    return search


def _located(team: Team, entry: Entry) -> Entry:
    """The entry with its workspaces where the run's folder lies now."""
    return replace(entry, checkpoint=_moved(team, entry.checkpoint), kept=_moved(team, entry.kept))


def _moved(team: Team, checkpoint: Checkpoint | None) -> Checkpoint | None:
    if checkpoint is None:
        return None
    name = checkpoint.candidate.candidate_id
    team.clock.declare(name, factor=expected_factor(team.skills, checkpoint.assembled))
    return replace(checkpoint, workspace=workspace_of(team, name))


def at_hand(team: Team, search: Search, name: str) -> Checkpoint:
    """A checkpoint with its workspace in place."""
    checkpoint = search.checkpoints[name]
    if not checkpoint.workspace.is_dir():
        # a folder with the right name is whole: a checkout that is interrupted leaves only the draft
        draft = checkpoint.workspace.with_name(f".{checkpoint.workspace.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        team.store.checkout(checkpoint.candidate.commit, draft)
        draft.rename(checkpoint.workspace)
    return checkpoint


def keep_round(team: Team, search: Search, journal: Journal, result: RoundResult, *, step: Step | None = None) -> None:
    """Journal the round, then count it: what is not in the journal has not happened."""
    windows = {
        name: {"windows": row.windows, "facts": row.facts, "discarded": row.discarded}
        for name, row in result.series.items()
    }
    entry = Entry(
        record=result.record, checkpoint=result.checkpoint, kept=result.kept, step=step, measurements=to_data(windows),
        spent=team.bench.spent.take(),
        num_discarded=max((len(row.discarded) for row in result.series.values()), default=0),
    )  # fmt: skip
    journal.append("round", to_data(entry))
    search.add(entry)
    record = result.record
    is_fake = team.bench.plan.spec.evaluation.clock is ClockKind.fake
    text = f"{record.outcome.value}: {record.reason}{' (fake clock)' if is_fake else ''}"
    team.progress.event(f"round {record.number}", text, **round_facts(record))
    forecast = scored(record)
    if forecast is not None:
        team.progress.event(f"round {record.number}", scored_text(forecast))
    if search.num_infra >= MAX_INFRA_FAILURES:
        raise InfraError(f"{search.num_infra} rounds in a row failed for the machine's reasons: {record.reason}")
