"""Check a target file: every fault of it, of what it inherits from and of what it selects, with its place."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.config.chain import read_chain
from vibeserve.config.compose import compose_file, placed_problems
from vibeserve.config.faults import fault_lines
from vibeserve.config.own_files import own_file_problems
from vibeserve.config.targets import TargetFile, entries
from vibeserve.errors import SpecError

if TYPE_CHECKING:
    from vibeserve.spec import Spec


@dataclass(frozen=True, kw_only=True)
class TargetCheck:
    """Outcome for one target. `errors` are one line each; `spec` is there when there are none.

    A part (`_NAME.yaml`) need not be complete: only its files are checked and it has no spec.
    """

    name: str
    errors: tuple[str, ...]
    spec: Spec | None = None

    @property
    def is_ok(self) -> bool:
        return not self.errors

    def document(self) -> dict[str, Any]:
        return {"name": self.name, "ok": self.is_ok, "errors": list(self.errors)}


def check_target(target: TargetFile, *, cwd: Path | None = None, overrides: Sequence[str] = ()) -> TargetCheck:
    """Schema, composition and semantics of `target` under `overrides`; every fault is returned, none raised."""
    here = (cwd or Path.cwd()).resolve()
    if target.is_part:
        return TargetCheck(name=target.name, errors=tuple(fault_lines(read_chain(target, cwd=here).faults)))
    try:
        spec = compose_file(target, overrides=overrides, cwd=here)
    except SpecError as error:
        return TargetCheck(name=target.name, errors=error.problems or (str(error),))
    problems = tuple(placed_problems(target, list(own_file_problems(spec)), overrides=overrides, cwd=here))
    return TargetCheck(name=target.name, errors=problems, spec=None if problems else spec)


def check_file(path: Path, *, cwd: Path | None = None, overrides: Sequence[str] = ()) -> TargetCheck:
    """Like `check_target`, for a file that lies anywhere."""
    here = (cwd or Path.cwd()).resolve()
    whole = Path(os.path.normpath(here / path))
    name = whole.parent.name if whole.name == "target.yaml" else whole.stem
    target = TargetFile(name=name, path=whole, origin="file")
    listed = (entry for entry in entries(target.root, origin="file") if entry.path == whole)
    return check_target(next(listed, target), cwd=here, overrides=overrides)
