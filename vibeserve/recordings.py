"""Recorded searches: what every round offered and what came of it, and the same tree built from that again.

A recording is a folder: `recording.json`, and for every candidate that was committed `edits/<candidate>/`, its files
against the tree that it started from. It stands for itself: round 0's whole tree is in it, so that it can be replayed
where the scaffold or the skills have changed. Every round says which checkpoint it started from, so that a search with
branches comes out as the tree that it was. Nothing is asked and nothing is measured again in the search; what comes out
is certified afresh.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from vibeserve.agents import Assembled
from vibeserve.agents.edits import apply_edits, record_edits
from vibeserve.checkpoint import CheckpointStore
from vibeserve.core.documents import digest_of, digest_tree, from_data, write_document
from vibeserve.core.nouns import Outcome, Round
from vibeserve.errors import RefusedError, SpecError
from vibeserve.journal import Journal, read_events
from vibeserve.policies import Step
from vibeserve.rounds import Checkpoint, RoundResult, Team
from vibeserve.synthesis import MOVE, Entry, Search, keep_round, restore
from vibeserve.synthesis.search import at_hand

RECORDING, EDITS, IN_ARTIFACT = "recording.json", "edits", "recording"
KEPT = (Outcome.BASELINE, Outcome.ACCEPTED)
SCHEMA_VERSION = 2
BRANCH = "branch: "
"""a reason of version 1 that begins so is of a round that did not start from the incumbent, or may not have"""


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
    step: Step | None = None
    """where in the search it stands; None: it extended the incumbent of its time, alone"""
    is_kept: bool = False
    """it passed every gate and was measured, and did not become the incumbent: later rounds may start from it"""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """Document: a whole search."""

    schema_version: int = SCHEMA_VERSION
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
    incumbent = ""
    with TemporaryDirectory(prefix="vibeserve-recording-") as scratch:
        trees = Path(scratch)
        (trees / "nothing").mkdir()
        for entry in entries:
            base = entry.step.parent if entry.step is not None else incumbent
            recorded = _recorded(entry, base=base, folder=folder, store=store, trees=trees)
            rounds.append(recorded)
            if entry.record.outcome in KEPT and entry.record.candidate is not None:
                incumbent = entry.record.candidate.candidate_id
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
    kept = entry.checkpoint or entry.kept
    return RecordedRound(
        record=replace(record, refused_attempts=(), seconds=0.0), base=base, tree_digest=digest,
        assembled=kept.assembled if kept else Assembled(), num_lines=kept.num_lines if kept else 0, step=entry.step,
        is_kept=entry.kept is not None,
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
    """The document in `folder`. SpecError where it cannot be read, is of a version that is not known here, or is of
    another target."""
    import json

    from dacite import DaciteError

    path = folder / RECORDING
    try:
        recording = from_data(Recording, _upgraded(json.loads(path.read_text(encoding="utf-8")), path=path))
    except (DaciteError, json.JSONDecodeError, ValueError) as error:
        raise SpecError(f"agents.recording: {path} is no recording: {error}") from error
    if recording.target != target:
        raise SpecError(
            f"agents.recording: {path} is a search for '{recording.target}', not for '{target}'",
            hint=f"vibeserve +target={recording.target} agents=replay agents.recording={folder}",
        )
    if not any(each.record.outcome in KEPT for each in recording.rounds):
        raise SpecError(f"agents.recording: {path} holds no round that was kept")
    _refuse_unknown_parents(recording, path=path)
    return recording


def _upgraded(data: Any, *, path: Path) -> Any:
    """The data of this version. Version 1 did not say where a round stands: a search of one line is that line; one with
    branches, by its reasons or by the journal of the artifact that it lies in, cannot be told apart any more. SpecError
    for that, and for any other version."""
    version = data.get("schema_version") if isinstance(data, dict) else None
    if not isinstance(version, int) or version == SCHEMA_VERSION:
        return data
    if version != 1:
        raise _version_error(path, version, why=f"this version of VibeServe reads {SCHEMA_VERSION}, and 1 upgraded")
    rounds = [each for each in data.get("rounds", ()) if isinstance(each, dict)]
    reasons = [str(each["record"].get("reason", "")) for each in rounds if isinstance(each.get("record"), dict)]
    journal = path.parent.parent / "journal.jsonl"
    has_moves = journal.is_file() and any(event.kind == MOVE for event in read_events(journal))
    if has_moves or any(reason.startswith(BRANCH) for reason in reasons):
        raise _version_error(path, version, why="which does not say where the rounds of a search with branches started")
    return {**data, "schema_version": SCHEMA_VERSION}


def _version_error(path: Path, version: int, *, why: str) -> SpecError:
    return SpecError(
        f"agents.recording: {path} has schema_version {version}; {why}",
        hint="replay it with the version of VibeServe that wrote it, or search anew",
    )  # fmt: skip


def _refuse_unknown_parents(recording: Recording, *, path: Path) -> None:
    """SpecError where a round starts from something that no round before it left."""
    known = {""}
    for each in recording.rounds:
        started = {each.base, each.step.parent if each.step is not None else ""}
        if not started <= known:
            told = f"round {each.record.number} starts from {min(started - known)}, which no round before it left"
            raise SpecError(f"agents.recording: {path} is no recording: {told}")
        if each.record.candidate is not None and (each.is_kept or each.record.outcome in KEPT):
            known.add(each.record.candidate.candidate_id)


def replay(team: Team, recording: Recording, *, folder: Path, journal: Journal) -> Search:
    """The search of `recording` again: the same trees, the recorded outcomes. Goes on where an earlier process stopped.

    RefusedError where the edits do not give the recorded tree.
    """
    search = restore(team, journal)
    for recorded in recording.rounds[len(search.entries) :]:
        checkpoint = _rebuilt(team, recorded, search=search, folder=folder)
        record = recorded.record
        if checkpoint is not None:
            record = replace(record, candidate=checkpoint.candidate)
        result = RoundResult(
            record=record, checkpoint=checkpoint if record.outcome in KEPT else None,
            kept=checkpoint if recorded.is_kept else None,
        )  # fmt: skip
        keep_round(team, search, journal, result, step=recorded.step)
    return search


def _rebuilt(team: Team, recorded: RecordedRound, *, search: Search, folder: Path) -> Checkpoint | None:
    """The round's workspace, built and committed; None where the round left none."""
    candidate = recorded.record.candidate
    if candidate is None:
        return None
    workspaces = team.bench.run_dir / "workspaces"
    workspace = workspaces / candidate.candidate_id
    shutil.rmtree(workspace, ignore_errors=True)
    workspace.parent.mkdir(parents=True, exist_ok=True)
    if recorded.base:
        shutil.copytree(at_hand(team, search, recorded.base).workspace, workspace)
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
