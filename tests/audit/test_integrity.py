"""Nothing may change while it is measured."""

from __future__ import annotations

from pathlib import Path

from vibeserve.audit import compare, snapshot


def test_every_change_is_a_refusal_that_names_the_file(tmp_path: Path) -> None:
    workspace, weights = tmp_path / "workspace", tmp_path / "weights.json"
    (workspace / "runtime").mkdir(parents=True)
    for name in ("kept.py", "edited.py", "removed.py"):
        (workspace / "runtime" / name).write_text("x = 1\n")
    weights.write_text("{}")
    before = snapshot([workspace, weights])
    (workspace / "runtime" / "edited.py").write_text("x = 2\n")
    (workspace / "runtime" / "removed.py").unlink()
    (workspace / "runtime" / "added.py").write_text("")
    weights.write_text("[]")
    refusals = compare(before, snapshot([workspace, weights]))
    assert all((refusal.gate, refusal.reason_class) == ("integrity", "digest_mismatch") for refusal in refusals)
    assert {(refusal.file, refusal.text.split()[1]) for refusal in refusals} == {
        ("runtime/added.py", "appeared"),
        ("runtime/edited.py", "changed"),
        ("runtime/removed.py", "vanished"),
        ("weights.json", "changed"),
    }


def test_nothing_changed_is_no_refusal_and_build_output_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "service.yaml").write_text("")
    before = snapshot([tmp_path, tmp_path / "absent"])
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "lib.so").write_bytes(b"x")
    assert compare(before, snapshot([tmp_path, tmp_path / "absent"])) == []


def test_a_root_that_vanishes_loses_every_file(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a").write_text("")
    before = snapshot([root])
    (root / "a").unlink()
    root.rmdir()
    assert [refusal.file for refusal in compare(before, snapshot([root]))] == ["a"]
