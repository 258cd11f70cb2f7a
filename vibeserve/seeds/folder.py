"""A folder of one's own as a seed, taken as it lies there. The plan covers its digest."""

from __future__ import annotations

import shutil
from pathlib import Path

from vibeserve.checkpoint import list_files
from vibeserve.errors import RefusedError

NEEDED = ("service.yaml", "runtime", "requirements.lock", "README.md")
"""what a packaged runtime is made of (`docs/contract.md`)"""


class FolderSeed:
    """A workspace that somebody wrote. See `port.Seed`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.origin = f"seed:{folder.name}"

    def materialise(self, destination: Path) -> None:
        copy_workspace(self._folder, destination)
        refuse_incomplete(destination, what=f"seed.path {self._folder}")


def copy_workspace(folder: Path, destination: Path) -> None:
    """Copy the files that a checkpoint keeps. RefusedError for links and other files that it cannot keep."""
    destination.mkdir(parents=True)
    for name in list_files(folder):
        (destination / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / name, destination / name)


def refuse_incomplete(workspace: Path, *, what: str) -> None:
    """RefusedError where a workspace lacks what every runtime has."""
    missing = [name for name in NEEDED if not (workspace / name).exists()]
    if missing:
        text = f"{what} is no runtime: it has no {', '.join(missing)}"
        raise RefusedError(f"{text}\nnext: docs/seeds.md says what it needs")
