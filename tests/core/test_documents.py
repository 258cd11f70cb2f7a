"""Digests of trees, and documents on disk."""

from __future__ import annotations

from pathlib import Path

from vibeserve.core.documents import digest_tree


def fill(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    return root


def test_only_the_build_output_at_the_top_of_a_workspace_is_left_out(tmp_path: Path) -> None:
    names = ("service.yaml", "build/kernel.so", "runtime/build/hidden.py", "runtime/model.py")
    workspace = fill(tmp_path / "workspace", *names, "runtime/__pycache__/model.pyc")
    assert list(digest_tree(workspace)) == ["runtime/build/hidden.py", "runtime/model.py", "service.yaml"]
    assert "build/kernel.so" in digest_tree(workspace, ignore=())


def test_a_package_named_build_is_digested(tmp_path: Path) -> None:
    package = fill(tmp_path / "package", "__init__.py", "build/steps.py")
    assert list(digest_tree(package)) == ["__init__.py", "build/steps.py"]
