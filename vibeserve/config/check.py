"""Check a target file against the schema, with `file:line:column` for every fault; then compose and validate it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.config.compose import compose_file
from vibeserve.config.targets import TargetFile
from vibeserve.config.yaml_check import file_problems
from vibeserve.errors import SpecError

if TYPE_CHECKING:
    from vibeserve.spec import Spec


@dataclass(frozen=True, kw_only=True)
class TargetCheck:
    """Outcome for one target. `errors` are one line each; `spec` is there when there are none."""

    name: str
    errors: tuple[str, ...]
    spec: Spec | None = None

    @property
    def is_ok(self) -> bool:
        return not self.errors

    def document(self) -> dict[str, Any]:
        return {"name": self.name, "ok": self.is_ok, "errors": list(self.errors)}


def check_target(target: TargetFile, *, cwd: Path | None = None) -> TargetCheck:
    """Schema, composition and semantics of `target`; every fault is returned, none raised."""
    try:
        problems = file_problems(target.path, cwd=cwd or Path.cwd())
    except RecursionError:
        problems = [f"{target.path.name}: an alias of it contains itself"]
    if problems:
        return TargetCheck(name=target.name, errors=tuple(problems))
    try:
        spec = compose_file(target, overrides=[], cwd=cwd)
    except SpecError as error:
        return TargetCheck(name=target.name, errors=error.problems or (str(error),))
    return TargetCheck(name=target.name, errors=(), spec=spec)


def check_file(path: Path, *, cwd: Path | None = None) -> TargetCheck:
    """Like `check_target`, for a file that lies anywhere."""
    name = path.parent.name if path.name == "target.yaml" else path.stem
    return check_target(TargetFile(name=name, path=path.resolve(), origin="file"), cwd=cwd)
