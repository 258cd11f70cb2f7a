"""Recorded edits: what was changed can be made again, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vibeserve.agents.edits import apply_edits, read_edits, record_edits
from vibeserve.core.documents import digest_of, digest_tree
from vibeserve.core.nouns import Refusal
from vibeserve.errors import RefusedError

Tree = dict[str, Any]
"""name -> (content, is executable), or another tree"""

SERVICE: Tree = {"service.yaml": (b"argv: []\n", False)}
BEFORE: Tree = {
    **SERVICE, "a.py": (b"A = 1\n", False), "tool.sh": (b"#!/bin/sh\n", False), "gone": {"x.py": (b"X = 1\n", False)}
}  # fmt: skip
AFTER: Tree = {
    **SERVICE, "a.py": (b"A = 2\n", False), "tool.sh": (b"#!/bin/sh\n", True), "new": {"y.py": (b"Y = 1\n", False)}
}  # fmt: skip


def build(root: Path, tree: Tree) -> Path:
    root.mkdir()
    for name, inner in tree.items():
        if isinstance(inner, dict):
            build(root / name, inner)
        else:
            (root / name).write_bytes(inner[0])
            (root / name).chmod(0o755 if inner[1] else 0o644)
    return root


def executables(root: Path) -> set[str]:
    files = [path for path in root.rglob("*") if path.is_file()]
    return {path.relative_to(root).as_posix() for path in files if os.access(path, os.X_OK)}


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    folder = tmp_path / "call" / "edits"
    record_edits(build(tmp_path / "before", BEFORE), build(tmp_path / "after", AFTER), folder)
    return folder


def copy_of(tmp_path: Path) -> Path:
    return Path(shutil.copytree(tmp_path / "before", tmp_path / "workspace"))


def test_only_what_changed_is_kept_and_it_can_be_made_again(recorded: Path, tmp_path: Path) -> None:
    assert sorted(digest_tree(recorded)) == ["edits.json", "files/a.py", "files/new/y.py", "files/tool.sh"]
    document = json.loads((recorded / "edits.json").read_text())
    assert document["schema_version"] == 1
    assert document["deleted"] == ["gone/x.py"]
    assert [(file["name"], file["mode"]) for file in document["files"]] == [
        ("a.py", "0644"), ("new/y.py", "0644"), ("tool.sh", "0755")
    ]  # fmt: skip
    assert document["result_digest"] == digest_of(digest_tree(tmp_path / "after"))
    workspace = copy_of(tmp_path)
    assert apply_edits(recorded, workspace) == read_edits(recorded)
    assert digest_tree(workspace) == digest_tree(tmp_path / "after")
    assert executables(workspace) == {"tool.sh"}
    assert not (workspace / "gone").exists()


def test_a_recording_is_replaced_whole(recorded: Path, tmp_path: Path) -> None:
    record_edits(tmp_path / "before", tmp_path / "before", recorded)
    assert sorted(digest_tree(recorded)) == ["edits.json"]
    assert [path.name for path in recorded.parent.iterdir()] == ["edits"]
    workspace = copy_of(tmp_path)
    apply_edits(recorded, workspace)
    assert digest_tree(workspace) == digest_tree(tmp_path / "before")


def test_a_failed_recording_leaves_the_earlier_one(recorded: Path, tmp_path: Path) -> None:
    kept = digest_tree(recorded)
    (tmp_path / "after" / "link.py").symlink_to("a.py")
    with pytest.raises(RefusedError, match=r"^recorded edits: link\.py: it is a symbolic link; edits hold plain"):
        record_edits(tmp_path / "before", tmp_path / "after", recorded)
    (tmp_path / "after" / "link.py").unlink()
    (tmp_path / "after" / "li\nne.py").write_text("")
    with pytest.raises(RefusedError, match=r"^recorded edits: li\\nne\.py: it has a character in its name that cannot"):
        record_edits(tmp_path / "before", tmp_path / "after", recorded)
    assert digest_tree(recorded) == kept


def edit_document(change: Callable[[Any], object]) -> Callable[[Path], object]:
    def tamper(recorded: Path) -> None:
        document = json.loads((recorded / "edits.json").read_text())
        change(document)
        (recorded / "edits.json").write_text(json.dumps(document))

    return tamper


def renamed(name: str) -> Callable[[Path], object]:
    """The recording tells of another name, and its file lies there, too."""

    def tamper(recorded: Path) -> None:
        edit_document(lambda document: document["files"][1].update(name=name))(recorded)
        place = recorded / "files" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        (recorded / "files" / "new" / "y.py").rename(place)

    return tamper


def linked(recorded: Path) -> None:
    (recorded / "files" / "a.py").rename(recorded / "elsewhere.py")
    (recorded / "files" / "a.py").symlink_to("../elsewhere.py")


TAMPERED: dict[str, tuple[Callable[[Path], object], str]] = {
    "content": (
        lambda recorded: (recorded / "files/a.py").write_text("A = 3\n"),
        "recorded edits: a.py: its recorded content does not match its digest",
    ),
    "missing": (
        lambda recorded: (recorded / "files/new/y.py").unlink(),
        "recorded edits: new/y.py: it cannot be read or replaced: No such file or directory",
    ),
    "unlisted": (
        lambda recorded: (recorded / "files/extra.py").write_text(""),
        "recorded edits: extra.py: it lies in {folder}/files and edits.json does not list it",
    ),
    "link": (linked, "recorded edits: a.py: it cannot be read or replaced: Too many levels of symbolic links"),
    "mode": (
        edit_document(lambda document: document["files"][0].update(mode="4755")),
        "recorded edits: a.py: mode '4755' is not valid; valid: 0755, 0644",
    ),
    "out": (renamed("../../y.py"), "recorded edits: ../../y.py: no name of a file that edits may hold"),
    "root": (renamed("/tmp/y.py"), "recorded edits: /tmp/y.py: no name of a file that edits may hold"),
    "hook": (renamed(".git/hooks/x"), "recorded edits: .git/hooks/x: no name of a file that edits may hold"),
    "cache": (renamed("__pycache__/a.pyc"), "recorded edits: __pycache__/a.pyc: no name of a file that edits may hold"),
    "output": (renamed("build/k.so"), "recorded edits: build/k.so: no name of a file that edits may hold"),
    "deletes out": (
        edit_document(lambda document: document.update(deleted=["../before/a.py"])),
        "recorded edits: ../before/a.py: no name of a file that edits may hold",
    ),
    "base": (
        edit_document(lambda document: document.update(base_digest="0" * 64)),
        "{workspace} is not the tree that was edited: the edits in {folder} do not apply to it",
    ),
    "no document": (lambda recorded: (recorded / "edits.json").unlink(), "{folder}/edits.json: no recorded edits: "),
    "another document": (
        edit_document(lambda document: document.update(surprise=1)),
        '{folder}/edits.json: no recorded edits: can not match "surprise"',
    ),
    "no json": (
        lambda recorded: (recorded / "edits.json").write_text("{"),
        "{folder}/edits.json: no recorded edits: Expecting",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TAMPERED)
def test_a_tampered_recording_is_refused_before_anything_is_changed(recorded: Path, tmp_path: Path, case: str) -> None:
    tamper, text = TAMPERED[case]
    tamper(recorded)
    workspace = copy_of(tmp_path)
    with pytest.raises(RefusedError) as refused:
        apply_edits(recorded, workspace)
    assert str(refused.value).startswith(text.format(folder=recorded, workspace=workspace))
    assert digest_tree(workspace, ignore=()) == digest_tree(tmp_path / "before", ignore=())


def test_the_refusal_is_typed_and_names_the_file(recorded: Path, tmp_path: Path) -> None:
    (recorded / "files/a.py").write_text("A = 3\n")
    with pytest.raises(RefusedError) as refused:
        apply_edits(recorded, copy_of(tmp_path))
    (reason,) = refused.value.reasons
    assert isinstance(reason, Refusal)
    assert (reason.gate, reason.reason_class, reason.file) == ("workspace", "digest_mismatch", "a.py")


@pytest.mark.parametrize("change", ["edited", "added", "deleted"])
def test_another_base_is_refused(recorded: Path, tmp_path: Path, change: str) -> None:
    workspace = copy_of(tmp_path)
    if change == "deleted":
        (workspace / "tool.sh").unlink()
    else:
        (workspace / ("a.py" if change == "edited" else "more.py")).write_text("A = 9\n")
    before = digest_tree(workspace)
    with pytest.raises(RefusedError, match="is not the tree that was edited"):
        apply_edits(recorded, workspace)
    assert digest_tree(workspace) == before


def test_a_result_that_is_another_tree_is_refused(recorded: Path, tmp_path: Path) -> None:
    edit_document(lambda document: document.update(deleted=[]))(recorded)
    with pytest.raises(RefusedError, match="give another tree than was recorded"):
        apply_edits(recorded, copy_of(tmp_path))


def test_what_a_digest_does_not_see_is_no_obstacle(tmp_path: Path) -> None:
    """A folder that becomes a file, and a file that becomes a folder, with caches in the way."""
    before = build(tmp_path / "before", {**SERVICE, "a": {"x.py": (b"", False)}, "b": (b"B\n", False)})
    after = build(tmp_path / "after", {**SERVICE, "a": (b"A\n", False), "b": {"x.py": (b"", False)}})
    record_edits(before, after, tmp_path / "edits")
    workspace = copy_of(tmp_path)
    (workspace / "a" / "__pycache__").mkdir()
    (workspace / "a" / "__pycache__" / "x.pyc").write_bytes(b"")
    (workspace / "build").mkdir()
    (workspace / "build" / "kernel.so").write_bytes(b"\0")
    apply_edits(tmp_path / "edits", workspace)
    assert digest_tree(workspace) == digest_tree(after)
    assert (workspace / "build" / "kernel.so").is_file()


NAMES = st.sampled_from(["a", "b", "c.py", "é", "a b", "-x", '"q"', "back\\slash", "service.yaml"])
FILES = st.tuples(st.binary(max_size=20), st.booleans())
TREES = st.recursive(FILES, lambda inner: st.dictionaries(NAMES, inner, max_size=5), max_leaves=12)
ROOTS = st.dictionaries(NAMES, TREES, max_size=5)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(before=ROOTS, after=ROOTS)
def test_any_tree_comes_back_from_any_other(before: Tree, after: Tree) -> None:
    with tempfile.TemporaryDirectory(prefix="edits-") as folder:
        root = Path(folder)
        build(root / "before", before)
        build(root / "after", after)
        record_edits(root / "before", root / "after", root / "edits")
        apply_edits(root / "edits", root / "before")
        assert digest_tree(root / "before", ignore=()) == digest_tree(root / "after", ignore=())
        assert executables(root / "before") == executables(root / "after")
