"""Files and folders that a spec names by a path: relative ones start from the target's folder, or one it inherits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from vibeserve.config.seed_rules import missing_seed, resolve_seed
from vibeserve.spec import SourceKind, Spec
from vibeserve.workloads import WORKLOAD_FILES


def resolve_files(spec: Spec) -> None:
    """Make the paths of `workload` and `seed` absolute: what reads them does not know the target's folders. A path that
    leads nowhere is left below the target's own folder, for the rules to refuse."""
    for name in WORKLOAD_FILES:
        if getattr(spec.workload, name):
            setattr(spec.workload, name, str(_whole(spec, getattr(spec.workload, name))))
    resolve_seed(spec)


def missing_files(spec: Spec) -> Iterator[str]:
    """`key: what` where the declared folder of the weights, or of the seed, is not there."""
    yield from missing_seed(spec)
    source = spec.model.source
    if source.kind is not SourceKind.folder or not source.path:
        return
    path = _whole(spec, source.path)
    if path.is_dir():
        return
    if path.exists():
        yield f"model.source.path: {source.path} is no folder"
        return
    folders = ", ".join([spec.target.dir, *spec.target.inherited_dirs])
    searched = "" if Path(source.path).is_absolute() else f"; searched: {folders}"
    yield f"model.source.path: there is no folder {source.path}{searched}"


def _whole(spec: Spec, path: str) -> Path:
    return (spec.target.folder_of(path) or Path()) / Path(path).expanduser()
