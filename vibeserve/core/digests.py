"""Digest of the framework itself: what decides is part of what was decided."""

from __future__ import annotations

from pathlib import Path

from vibeserve.core.documents import digest_of, digest_tree
from vibeserve.core.paths import data_dir


def framework_digest() -> str:
    """Digest over the installed `vibeserve` sources and `templates/`."""
    package = Path(__file__).resolve().parents[1]
    ignore = ("__pycache__", "_data", ".mypy_cache")
    trees = {"vibeserve": digest_tree(package, ignore=ignore), "templates": digest_tree(data_dir("templates"))}
    return digest_of(trees)
