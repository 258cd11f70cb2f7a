"""Recorded searches: what every round offered and what came of it, and the same tree built from that again.

A recording is a folder: `recording.json`, and for every candidate that was committed `edits/<candidate>/`, its files
against the tree that it started from. It stands for itself: round 0's whole tree is in it, so that it can be replayed
where the scaffold or the skills have changed. Nothing is asked and nothing is measured again in the search; what comes
out is certified afresh.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from vibeserve.agents import Assembled
from vibeserve.agents.edits import apply_edits, record_edits
from vibeserve.checkpoint import CheckpointStore
from vibeserve.core.documents import digest_of, digest_tree, read_document, write_document
from vibeserve.core.nouns import Outcome, Round
from vibeserve.errors import RefusedError, SpecError
from vibeserve.journal import Journal
from vibeserve.rounds import Checkpoint, RoundResult, Team
from vibeserve.synthesis import Entry, Search, keep_round, restore

RECORDING, EDITS, IN_ARTIFACT = "recording.json", "edits", "recording"
KEPT = (Outcome.BASELINE, Outcome.ACCEPTED)


@dataclass(frozen=True, kw_only=True)
class RecordedRound:
    """One round, without the places that it had on its machine."""

    record: Round
    base: str
    """candidate that its edits start from; empty = from nothing"""
    tree_digest: str
    """of its workspace; empty where nothing was committed"""
    assembled: Assembled = field(default_factory=Assembled)
    num_lines: int = 0


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Document: a whole search."""

    schema_version: int = 1
    target: str
    plan_id: str
    rounds: tuple[RecordedRound, ...]

    @property
    def winner(self) -> RecordedRound:
        """The last one that was kept."""
        return [each for each in self.rounds if each.record.outcome in KEPT][-1]


def write_recording(
    folder: Path, *, entries: Sequence[Entry], store: CheckpointStore, target: str, plan_id: str
) -> Recording:
    """Write the search of `entries` into the new folder `folder`."""
    rounds: list[RecordedRound] = []
    base = ""
    with TemporaryDirectory(prefix="vibeserve-recording-") as scratch:
        trees = Path(scratch)
        (trees / "nothing").mkdir()
        for entry in entries:
            recorded = _recorded(entry, base=base, folder=folder, store=store, trees=trees)
            rounds.append(recorded)
            if entry.record.outcome in KEPT and entry.record.candidate is not None:
                base = entry.record.candidate.candidate_id
    recording = Recording(target=target, plan_id=plan_id, rounds=tuple(rounds))
    write_document(folder / RECORDING, recording)
    return recording


def _recorded(entry: Entry, *, base: str, folder: Path, store: CheckpointStore, trees: Path) -> RecordedRound:
    record = entry.record
    digest = ""
    if record.candidate is not None:
        name = record.candidate.candidate_id
        store.checkout(record.candidate.commit, trees / name)
        record_edits(trees / (base or "nothing"), trees / name, folder / EDITS / name)
        digest = tree_digest(trees / name)
        record = replace(record, candidate=replace(record.candidate, workspace=""))
    kept = entry.checkpoint
    return RecordedRound(
        record=replace(record, refused_attempts=(), seconds=0.0), base=base, tree_digest=digest,
        assembled=kept.assembled if kept else Assembled(), num_lines=kept.num_lines if kept else 0,
    )  # fmt: skip


def tree_digest(workspace: Path) -> str:
    """One digest for every file of a workspace that a checkpoint keeps."""
    return digest_of(digest_tree(workspace))


def recording_folder(path: Path) -> Path:
    """The recording at `path`, or in the artifact that lies there. SpecError where there is none."""
    for folder in (path, path / IN_ARTIFACT):
        if (folder / RECORDING).is_file():
            return folder
    raise SpecError(
        f"agents.recording: no recording at {path}", problems=[f"it has no {RECORDING} and no {IN_ARTIFACT}/"],
        hint="name an artifact, such as artifacts/smollm2_cpu/latest",
    )  # fmt: skip


def read_recording(folder: Path, *, target: str) -> Recording:
    """The document in `folder`. SpecError where it cannot be read, or is of another target."""
    import json

    from dacite import DaciteError

    path = folder / RECORDING
    try:
        recording = read_document(path, Recording)
    except (DaciteError, json.JSONDecodeError, ValueError) as error:
        raise SpecError(f"agents.recording: {path} is no recording: {error}") from error
    if recording.target != target:
        raise SpecError(
            f"agents.recording: {path} is a search for '{recording.target}', not for '{target}'",
            hint=f"vibeserve +target={recording.target} agents=replay agents.recording={folder}",
        )
    if not any(each.record.outcome in KEPT for each in recording.rounds):
        raise SpecError(f"agents.recording: {path} holds no round that was kept")
    return recording


def replay(team: Team, recording: Recording, *, folder: Path, journal: Journal) -> Search:
    """The search of `recording` again: the same trees, the recorded outcomes. Goes on where an earlier process stopped.

    RefusedError where the edits do not give the recorded tree.
    """
    search = restore(team, journal)
    for recorded in recording.rounds[len(search.entries) :]:
        checkpoint = _rebuilt(team, recorded, folder=folder)
        record = recorded.record
        if checkpoint is not None:
            record = replace(record, candidate=checkpoint.candidate)
        kept = checkpoint if record.outcome in KEPT else None
        keep_round(team, search, journal, RoundResult(record=record, checkpoint=kept))
    return search


def _rebuilt(team: Team, recorded: RecordedRound, *, folder: Path) -> Checkpoint | None:
    """The round's workspace, built and committed; None where the round left none."""
    candidate = recorded.record.candidate
    if candidate is None:
        return None
    workspaces = team.bench.run_dir / "workspaces"
    workspace = workspaces / candidate.candidate_id
    shutil.rmtree(workspace, ignore_errors=True)
    workspace.parent.mkdir(parents=True, exist_ok=True)
    if recorded.base:
        shutil.copytree(workspaces / recorded.base, workspace)
    else:
        workspace.mkdir()
    apply_edits(folder / EDITS / candidate.candidate_id, workspace)
    if tree_digest(workspace) != recorded.tree_digest:
        raise RefusedError(f"agents.recording: the edits of {candidate.candidate_id} do not give the recorded tree")
    proposal = recorded.record.proposal
    sha = team.store.commit(
        workspace, parent=None, message=proposal.title if proposal else "round 0: the seed",
        ref=f"refs/vibeserve/{team.run_id}/{candidate.candidate_id}",
    )  # fmt: skip
    team.clock.declare(candidate.candidate_id, factor=1.0)
    return Checkpoint(
        candidate=replace(candidate, commit=sha, workspace=str(workspace)), assembled=recorded.assembled,
        workspace=workspace, spans=recorded.record.spans, num_lines=recorded.num_lines,
    )  # fmt: skip
