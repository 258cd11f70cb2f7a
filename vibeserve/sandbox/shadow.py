"""Tier B's view of the interpreter: a virtual environment of links that leaves the hidden modules out.

Landlock can forbid reading a package but not seeing its name, and a package that is seen but cannot be read fails
with PermissionError where `except ImportError` was meant. So the interpreter inside gets a site-packages of links to
the visible entries, and Landlock closes the real one's other entries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vibeserve.errors import InfraError
from vibeserve.sandbox.layout import (
    ETC_PATHS,
    SYS_PATHS,
    SYSTEM_PATHS,
    gpu_paths,
    interpreter_prefixes,
    site_folders,
    visible_entries,
    wall_python,
)
from vibeserve.sandbox.wall import Wall

_PROC_FILES = ("cpuinfo", "meminfo", "stat", "loadavg", "uptime", "version", "filesystems", "sys")


@dataclass(frozen=True, kw_only=True)
class Shadow:
    """`python` is what the wall's caller names, `replacement` what runs instead."""

    python: Path
    replacement: Path

    def translate(self, argument: str) -> str:
        return str(self.replacement) if argument == str(self.python) else argument

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """The environment with the replacement's folder first on PATH."""
        old, new = str(self.python.parent), str(self.replacement.parent)
        return {**env, "PATH": ":".join(new if part == old else part for part in env["PATH"].split(":"))}


def make_shadow(wall: Wall, folder: Path) -> Shadow | None:
    """Build the environment in `folder`; None when nothing visible to this interpreter needs hiding."""
    python = wall_python(wall)
    folder.mkdir()
    sites = {site: visible_entries(site, wall.hidden_modules) for site in site_folders(python)}
    if all(visible is None for visible in sites.values()):
        return None
    own_prefix = python.parent.parent
    config = own_prefix / "pyvenv.cfg"
    text = config.read_text(encoding="utf-8") if config.is_file() else f"home = {python.parent}\n"
    sees_system = not config.is_file() or re.search(r"^include-system-site-packages\s*=\s*true", text, re.M)
    kept = [line for line in text.splitlines() if not line.startswith("include-system-site-packages")]
    # the base interpreter's own packages would come in unfiltered; where they belong to the view they are linked below
    lines = [*kept, "include-system-site-packages = false", ""]
    (folder / "pyvenv.cfg").write_text("\n".join(lines), encoding="utf-8")
    (folder / "bin").mkdir()
    for name in {"python", "python3", python.name}:
        (folder / "bin" / name).symlink_to(python.resolve())
    target = folder / "lib" / _version_folder(python) / "site-packages"
    target.mkdir(parents=True)
    for site, visible in sites.items():
        if site.is_relative_to(own_prefix) or sees_system:
            _link(target, tuple(site.iterdir()) if visible is None else visible)
    return Shadow(python=python, replacement=folder / "bin" / python.name)


def _version_folder(python: Path) -> str:
    """`python3.11`: the name of the folder that holds this interpreter's standard library."""
    for prefix in (*interpreter_prefixes(python), python.resolve().parent.parent):
        for library in sorted(prefix.glob("lib/python3*/os.py")):
            return library.parent.name
    raise InfraError(f"{python} has no standard library beside it, so no view of it can be made")


def _link(target: Path, entries: tuple[Path, ...]) -> None:
    for entry in entries:
        link = target / entry.name
        if not link.is_symlink():
            link.symlink_to(entry)


def landlock_paths(wall: Wall) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """(read-only, list-only) paths of the wall; a hierarchy that holds a hidden entry is granted piece by piece."""
    python = wall_python(wall)
    masks = {
        site: visible
        for site in site_folders(python)
        if (visible := visible_entries(site, wall.hidden_modules)) is not None
    }
    roots = [Path(path) for path in SYSTEM_PATHS] + list(interpreter_prefixes(python)) + [wall.workdir, *wall.read_only]
    read_only: list[Path] = [Path(path) for path in (*ETC_PATHS, *SYS_PATHS, *gpu_paths(wall))]
    read_only += [Path("/proc") / name for name in _PROC_FILES]
    for root in roots:
        read_only += _without(root.resolve(), masks)
    for visible in masks.values():
        read_only += visible
    return tuple(dict.fromkeys(read_only)), tuple(dict.fromkeys((*_ancestors(masks), *wall.listable)))


def _without(root: Path, masks: Mapping[Path, object]) -> list[Path]:
    """`root`, or its pieces where a masked folder lies below it; the masked folders themselves are left out."""
    if root in masks:
        return []
    if not any(mask.is_relative_to(root) for mask in masks) or not root.is_dir():
        return [root]
    pieces: list[Path] = []
    for entry in root.iterdir():
        # a link such as lib64 -> lib would grant what it leads to, masked folders included
        child = entry.resolve() if entry.is_symlink() else entry
        if child == entry or not child.is_relative_to(root):
            pieces += _without(child, masks)
    return pieces


def _ancestors(masks: Mapping[Path, object]) -> list[Path]:
    """The masked folders and what is above them in their trees: their names may be listed."""
    return [path for mask in masks for path in (mask, mask.parent, mask.parent.parent)]
