"""Where the packaged data lies: a checkout's top-level folders, or the wheel's copy of them."""

from __future__ import annotations

import os
import socket
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def data_dir(name: str) -> Path:
    """Folder `conf`, `skills`, `targets` or `templates`, as shipped with this installation; `exploits` of a wheel."""
    packaged = _PACKAGE / "_data" / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name


def cache_dir() -> Path:
    """Per-user cache for weights and peers; `VIBESERVE_CACHE` moves it."""
    declared = os.environ.get("VIBESERVE_CACHE")
    if declared:
        return Path(declared).expanduser().resolve()
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "vibeserve"


def lease_dir() -> Path:
    """Per-user folder of this machine's device leases, whatever project or cache a run uses; `VIBESERVE_LEASES` moves
    it. A home that several machines share holds one folder for each."""
    declared = os.environ.get("VIBESERVE_LEASES")
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    base = Path(declared).expanduser().resolve() if declared else Path(state) / "vibeserve" / "leases"
    return base / socket.gethostname()


def state_dir(project: Path) -> Path:
    """Run state (journals, workspaces, step stamps) of the project in folder `project`."""
    return project / ".vibeserve"
