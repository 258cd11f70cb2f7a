"""The packaged predecessor: which commit it is, and that its bytes come out of the bundle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from artifact_samples import sample_contents, sample_manifest, sample_rounds

from vibeserve.artifact import Packaged, package
from vibeserve.artifact.predecessor import check_out_predecessor
from vibeserve.checkpoint import CheckpointStore
from vibeserve.core.manifest import Manifest, RoundEntry
from vibeserve.core.nouns import Outcome
from vibeserve.errors import InfraError
from vibeserve.journal import Journal


@pytest.fixture
def packaged(tmp_path: Path) -> Packaged:
    """Rounds 0 and 1 are kept, 2 is rejected; the bundle holds a commit of each kept one."""
    contents = sample_contents(tmp_path)
    workspace = contents.workspace
    store: CheckpointStore = contents.checkpoints
    first = store.commit(workspace, parent=None, message="round 0", ref="run-1/r0")
    (workspace / "runtime/model.py").write_text("HIDDEN = 128\n")
    second = store.commit(workspace, parent=first, message="round 1", ref="run-1/r1")
    commits = [first, second, second, ""]
    rounds = [
        replace(record, entry=replace(record.entry, commit=commit))
        for record, commit in zip(contents.rounds, commits, strict=True)
    ]
    with Journal.open(tmp_path / "journal.jsonl") as journal:
        return package(replace(contents, rounds=tuple(rounds)), out_dir=tmp_path / "artifacts", journal=journal)


def test_it_is_the_incumbent_before_the_last_accepted_round(packaged: Packaged, tmp_path: Path) -> None:
    found = check_out_predecessor(packaged.path, packaged.manifest, destination=tmp_path / "before")
    assert found is not None and found.round_number == 0
    assert (found.workspace / "runtime/model.py").read_text() == "HIDDEN = 64\n"
    assert (packaged.path / "runtime/runtime/model.py").read_text() == "HIDDEN = 128\n"
    assert found.recorded is not None and (found.recorded.ratio, found.recorded.ci_low) == (1.8, 1.7)


def with_rounds(manifest: Manifest, *rounds: RoundEntry) -> Manifest:
    return replace(manifest, rounds=rounds)


def test_a_rejected_round_is_nobodys_predecessor(packaged: Packaged, tmp_path: Path) -> None:
    entries = packaged.manifest.rounds
    later = replace(entries[1], number=3, commit=entries[1].commit)
    found = check_out_predecessor(
        packaged.path, with_rounds(packaged.manifest, *entries[:3], later), destination=tmp_path / "before"
    )
    assert found is not None and found.round_number == 1


def test_a_runtime_that_replaced_nothing_has_none(packaged: Packaged, tmp_path: Path) -> None:
    only = with_rounds(packaged.manifest, packaged.manifest.rounds[0])
    assert check_out_predecessor(packaged.path, only, destination=tmp_path / "a") is None
    unnamed = sample_manifest(rounds=sample_rounds())
    assert [entry.outcome for entry in unnamed.rounds][:2] == [Outcome.BASELINE, Outcome.ACCEPTED]
    assert check_out_predecessor(packaged.path, unnamed, destination=tmp_path / "a") is None


def test_a_bundle_without_the_commit_is_infrastructure(packaged: Packaged, tmp_path: Path) -> None:
    entries = packaged.manifest.rounds
    other = with_rounds(packaged.manifest, replace(entries[0], commit="d" * 40), entries[1])
    with pytest.raises(InfraError, match="git ls-tree failed"):
        check_out_predecessor(packaged.path, other, destination=tmp_path / "a")
    (packaged.path / "checkpoints.bundle").write_text("no bundle\n")
    with pytest.raises(InfraError, match="git fetch failed"):
        check_out_predecessor(packaged.path, packaged.manifest, destination=tmp_path / "b")
