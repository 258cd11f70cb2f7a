"""An artifact, or a folder, as what round 0 starts from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from artifact_samples import write_workspace

from vibeserve.checkpoint import CheckpointStore
from vibeserve.core.documents import digest_tree
from vibeserve.core.paths import data_dir
from vibeserve.errors import RefusedError, SpecError
from vibeserve.plan.seed import with_digest
from vibeserve.seeds import get_seed, get_seeds
from vibeserve.spec import Seed

TEXT = data_dir("templates") / "runtime/text"


def write_artifact(root: Path, *, outcomes: tuple[str, ...] = ("baseline", "rejected", "accepted")) -> Path:
    """A manifest with rounds and the bundle of their candidates; nothing else that an artifact has."""
    root.mkdir(parents=True)
    store = CheckpointStore(root.parent / "store.git")
    rounds = []
    for number, outcome in enumerate(outcomes):
        workspace = write_workspace(root.parent / f"r{number}")
        (workspace / "runtime/model.py").write_text(f"ROUND = {number}\n")
        commit = store.commit(workspace, parent=None, message=f"{number}", ref=f"run-1/r{number}")
        rounds.append({"number": number, "outcome": outcome, "commit": commit})
    if rounds:
        store.bundle(root / "checkpoints.bundle")
    document = {"target": "tiny", "plan_id": "0123456789abcdef", "rounds": rounds}
    (root / "manifest.json").write_text(json.dumps(document))
    (root / "SHA256SUMS").write_text("0" * 64 + "  manifest.json\n")
    return root


def seed_of(path: Path, kind: str = "artifact") -> Seed:
    return Seed(kind=kind, path=str(path))


def test_the_incumbents_come_newest_first_and_the_scaffold_last(tmp_path: Path) -> None:
    artifact = write_artifact(tmp_path / "artifact")
    first, older, plain = get_seeds(seed_of(artifact), scaffold=TEXT, settings={})
    first.materialise(tmp_path / "first")
    older.materialise(tmp_path / "older")
    assert (tmp_path / "first/runtime/model.py").read_text() == "ROUND = 2\n"
    assert (tmp_path / "older/runtime/model.py").read_text() == "ROUND = 0\n"
    assert first.origin.startswith("seed:tiny/0123456789abcdef@") and first.origin != older.origin
    assert plain.origin == "scaffold"


def test_a_bundle_without_the_named_commit_is_refused(tmp_path: Path) -> None:
    artifact = write_artifact(tmp_path / "artifact")
    document = json.loads((artifact / "manifest.json").read_text())
    document["rounds"][-1]["commit"] = "a" * 40
    (artifact / "manifest.json").write_text(json.dumps(document))
    with pytest.raises(RefusedError, match=r"checkpoints\.bundle does not hold aaaaaaa"):
        get_seed(seed_of(artifact), scaffold=TEXT, settings={}).materialise(tmp_path / "w")


def test_what_is_no_artifact_or_holds_no_runtime_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"the seed is no artifact that can be read\n  seed\.path: .*manifest\.json"):
        get_seed(seed_of(tmp_path), scaffold=TEXT, settings={})
    empty = write_artifact(tmp_path / "empty", outcomes=())
    with pytest.raises(SpecError, match=r"seed\.path: no round of .* left a checkpoint"):
        get_seed(seed_of(empty), scaffold=TEXT, settings={})


def test_a_folder_is_copied_as_it_lies_there(tmp_path: Path) -> None:
    folder = write_workspace(tmp_path / "mine")
    (folder / "build").mkdir()
    (folder / "build/kernel.so").write_bytes(b"\0")
    seed = get_seed(seed_of(folder, "path"), scaffold=TEXT, settings={})
    seed.materialise(tmp_path / "w")
    assert seed.origin == "seed:mine"
    assert digest_tree(tmp_path / "w") == digest_tree(folder) and not (tmp_path / "w/build").exists()


def test_a_folder_that_is_no_runtime_or_holds_a_link_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "service.yaml").write_text("argv: []\n")
    with pytest.raises(RefusedError, match=r"it has no runtime, requirements\.lock, README\.md\nnext: docs"):
        get_seed(seed_of(folder, "path"), scaffold=TEXT, settings={}).materialise(tmp_path / "w")
    (folder / "link").symlink_to("/etc/passwd")
    with pytest.raises(RefusedError, match="link is a symbolic link to /etc/passwd"):
        get_seed(seed_of(folder, "path"), scaffold=TEXT, settings={}).materialise(tmp_path / "w2")


def test_a_plan_knows_a_seed_by_its_content_and_not_by_its_place(tmp_path: Path) -> None:
    one, two = write_workspace(tmp_path / "one"), write_workspace(tmp_path / "two")
    assert with_digest(seed_of(one, "path")).digest == with_digest(seed_of(two, "path")).digest
    (two / "runtime/model.py").write_text("HIDDEN = 65\n")
    assert with_digest(seed_of(one, "path")).digest != with_digest(seed_of(two, "path")).digest
    assert with_digest(Seed()).digest == ""


def test_a_declared_digest_must_be_the_content_unless_the_folder_is_gone(tmp_path: Path) -> None:
    folder = write_workspace(tmp_path / "mine")
    declared = with_digest(seed_of(folder, "path"))
    assert with_digest(declared) == declared
    (folder / "runtime/model.py").write_text("HIDDEN = 65\n")
    with pytest.raises(SpecError, match=r"seed\.digest: \w+ is declared, what lies there has \w+"):
        with_digest(declared)
    gone = Seed(kind="path", path=str(tmp_path / "gone"), digest=declared.digest)
    assert with_digest(gone) == gone


def test_a_folder_without_a_list_of_sums_is_no_artifact(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"the seed is no artifact\n  seed\.path: .* has no SHA256SUMS"):
        with_digest(seed_of(tmp_path))
