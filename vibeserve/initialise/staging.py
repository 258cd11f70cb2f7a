"""Write a target beside its place, prove that it composes, move it there whole. Nothing half-written is ever left."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from vibeserve.config import check_file
from vibeserve.config.schema import target_schema
from vibeserve.config.targets import group_options
from vibeserve.config.targets import project_root as found_root
from vibeserve.core.documents import write_text_atomic
from vibeserve.errors import SpecError
from vibeserve.spec import Spec

SCHEMA_FILE = ".target.schema.json"
IGNORED = ("artifacts/", ".vibeserve/")
STAGED_SUFFIX = "__staged"


@dataclass(frozen=True, kw_only=True)
class Written:
    """What `vibeserve init` did."""

    target: str
    files: tuple[str, ...]
    """relative to `root`"""
    root: str
    notes: tuple[str, ...]
    next: tuple[str, ...]
    """commands"""
    schema_version: int = 1


def project_root(declared: Path | None) -> Path:
    """Where `targets/` lies or will lie: the declared folder, else the repository's, else the working directory."""
    if declared is not None:
        if not declared.is_dir():
            if declared.exists():
                raise SpecError(f"--dir {declared}: a file, no folder", hint="name the repository's folder")
            raise SpecError(f"--dir {declared}: no such folder", hint=f"mkdir -p {declared}")
        return declared.resolve()
    return found_root()


def refuse_existing(name: str, *, root: Path) -> None:
    """SpecError where a target of this name lies in the repository already; nothing is overwritten."""
    targets = root / "targets"
    taken = [path for path in (targets / f"{name}.yaml", targets / name) if path.exists()]
    if taken:
        number = next(n for n in range(2, 1000) if not any((targets / f"{name}_{n}{end}").exists() for end in _ENDS))
        raise SpecError(
            f"{_shown(taken[0], root)} exists; nothing was written",
            problems=[f"`vibeserve check {name}` says whether it is valid"],
            hint=f"edit it, remove it, or choose another name: vibeserve init {name}_{number}",
        )


_ENDS = ("", ".yaml")


@contextmanager
def staged_folder(name: str, files: Mapping[str, str], *, root: Path) -> Iterator[Path]:
    """The folder with `files` (relative path -> text) under a name of its own; gone at the block's end unless moved."""
    # two commands at once must not write into each other's folder
    staged = root / "targets" / f"{name}{STAGED_SUFFIX}{os.getpid()}"
    had_targets = staged.parent.is_dir()
    shutil.rmtree(staged, ignore_errors=True)
    try:
        for relative, text in files.items():
            write_text_atomic(staged / relative, text)
        yield staged
    finally:
        shutil.rmtree(staged, ignore_errors=True)
        if not had_targets and staged.parent.is_dir() and not any(staged.parent.iterdir()):
            staged.parent.rmdir()


def refuse_wrong(path: Path, *, name: str, root: Path) -> Spec:
    """The spec of the staged target file at `path`, or SpecError with its faults in the words of its later place."""
    check = check_file(path, cwd=root)
    if check.spec is None:
        later = name if name.endswith("/") else ""
        problems = [error.replace(f"{path.parent.name}/", later) for error in check.errors]
        raise SpecError(
            f"these answers make no valid target; targets/{name} was not written", problems=problems,
            hint="vibeserve init --help",
        )  # fmt: skip
    return check.spec


def write_target_file(name: str, text: str, *, root: Path) -> Path:
    """`targets/NAME.yaml`, if what it says is valid."""
    with staged_folder(name, {f"{name}.yaml": text}, root=root) as staged:
        refuse_wrong(staged / f"{name}.yaml", name=f"{name}.yaml", root=root)
        refuse_existing(name, root=root)
        place = root / "targets" / f"{name}.yaml"
        (staged / f"{name}.yaml").replace(place)
    return place


def write_surroundings(root: Path) -> tuple[list[Path], list[str]]:
    """The schema for editors and a .gitignore; returns what was written and what is left to the user to do."""
    schema = root / "targets" / SCHEMA_FILE
    write_text_atomic(schema, json.dumps(target_schema(group_options(root)), indent=1) + "\n")
    ignore = root / ".gitignore"
    if not ignore.exists():
        write_text_atomic(ignore, "\n".join(IGNORED) + "\n")
        return [schema, ignore], []
    lines = {line.strip().strip("/") for line in ignore.read_text(encoding="utf-8", errors="replace").splitlines()}
    absent = [entry for entry in IGNORED if entry.strip("/") not in lines]
    return [schema], [f".gitignore lacks {' and '.join(absent)}: runs write there"] if absent else []


def written(name: str, paths: list[Path], *, root: Path, notes: list[str]) -> Written:
    """The summary with the next commands."""
    deep = " --deep" if (root / "targets" / name).is_dir() else ""
    commands = (f"vibeserve check {name}{deep}", f"vibeserve plan {name}", f"vibeserve +target={name} budget=smoke")
    return Written(
        target=name, files=tuple(_shown(path, root) for path in paths), root=str(root), notes=tuple(notes),
        next=commands,
    )  # fmt: skip


def _shown(path: Path, root: Path) -> str:
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
