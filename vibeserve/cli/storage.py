"""Folders that cannot be written to: the few operating-system errors that are the machine's state and no bug."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from vibeserve.core.paths import cache_dir, lease_dir
from vibeserve.core.storage import FULL, TAKES_NOTHING, free_text
from vibeserve.errors import InfraError

HOLDS = {"VIBESERVE_CACHE": "models, peers and builds", "VIBESERVE_LEASES": "the leases of this machine's devices"}
NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.EEXIST)


def storage_error(error: OSError) -> InfraError | None:
    """The error as a message of one line and a next step; None for every other OSError, which is a bug and stays one.

    A full or read-only file system always is one; a permission only where the folder is closed to this user; a missing
    folder only where it is the declared cache or lease folder, and cannot be made.
    """
    path = Path(os.fsdecode(error.filename)).absolute() if isinstance(error.filename, str | bytes) else None
    configured = _configured(path)
    why = error.strerror or str(error)
    if error.errno in TAKES_NOTHING:
        space = free_text(path) if path is not None and error.errno in FULL else ""
        return _named(path, why=f"{why}{space}", configured=configured)
    # EPERM with a file's name: an immutable folder, or a file system of the kernel's; the superuser gets it as well
    if path is not None and error.errno == errno.EPERM:
        return _named(path, why=why, configured=configured)
    if path is not None and error.errno == errno.EACCES and not os.access(_existing(path.parent), os.W_OK | os.X_OK):
        return _named(path, why=why, configured=configured)
    if path is not None and error.errno in NO_FOLDER and configured is not None and not _can_be_made(configured[1]):
        return _named(path, why=why, configured=configured)
    return None


def _named(path: Path | None, *, why: str, configured: tuple[str, Path] | None) -> InfraError:
    variable, folder = configured or ("", _existing(path.parent) if path else None)
    where = f"{folder}: " if folder else ""
    what = f"{path or 'a file'} could not be written"
    if path is not None and variable:
        what = f"{HOLDS[variable]} could not be written ({path})"
    if variable:
        step = f"name a folder that can be written to: {variable}=FOLDER vibeserve ..."
    elif folder:
        step = f"make {folder} writable and free its disk, or start from another folder"
    else:
        step = "free the disk (`df -h`), or name other folders: VIBESERVE_CACHE=FOLDER, out_dir=FOLDER"
    return InfraError(f"{where}{what}: {why}\nnext: {step}")


def _configured(path: Path | None) -> tuple[str, Path] | None:
    """(variable, folder) of the folder outside the project that `path` is, lies in or leads to."""
    if path is None:
        return None
    for variable, folder in (("VIBESERVE_CACHE", cache_dir()), ("VIBESERVE_LEASES", lease_dir())):
        leads_to = path in folder.parents and not path.is_dir()
        if path == folder or folder in path.parents or leads_to:
            return variable, folder
    return None


def _can_be_made(folder: Path) -> bool:
    """Tried, because permissions do not tell: nobody makes a folder in /proc."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return True


def _existing(folder: Path) -> Path:
    """The nearest folder that is there."""
    return next((each for each in (folder, *folder.parents) if each.is_dir()), Path("/"))
