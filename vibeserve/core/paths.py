"""Where the packaged data lies: a checkout's top-level folders, or the wheel's copy of them."""

from __future__ import annotations

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def data_dir(name: str) -> Path:
    """Folder `conf`, `skills`, `targets` or `templates`, as shipped with this installation."""
    packaged = _PACKAGE / "_data" / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name


def cache_dir() -> Path:
    """Per-user cache for weights and peers; `VIBESERVE_CACHE` moves it."""
    declared = os.environ.get("VIBESERVE_CACHE")
    if declared:
        return Path(declared).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "vibeserve"


def state_dir(project: Path) -> Path:
    """Run state (journals, workspaces, step stamps) of the project in folder `project`."""
    return project / ".vibeserve"
