"""The files that a target brings, as they travel in an artifact: `contract/`, its own folder first."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

from vibeserve.core.documents import digest_file, digest_of, digest_tree
from vibeserve.modalities.sources import TARGET_FILE, BundleRef, contract_files, target_folders
from vibeserve.spec import Spec

INHERITED = "inherited"
"""contract/inherited/N: folders of the targets that it inherits from, the nearest first"""


def copy_contract(spec: Spec, destination: Path) -> bool:
    """Copy what the spec's target brings beside its YAML to `destination`; False (and nothing) where it brings none."""
    files = contract_files(spec)
    folders = target_folders(spec)
    for folder in folders:
        place = _place(spec, folder, destination)
        place.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(folder / TARGET_FILE, place / TARGET_FILE)
        # a file belongs to the innermost of the folders that hold it
        for path in [path for path in files if _owner(path, folders) == folder]:
            copied = place / path.relative_to(folder)
            copied.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copied)
    return bool(folders)


def with_contract(spec: Spec, folder: Path | None) -> Spec:
    """The spec with its target's files in `folder`, as `copy_contract` left them; without one it has none."""
    inherited = sorted((folder / INHERITED).glob("*/")) if folder is not None else []
    target = replace(
        spec.target, dir=str(folder) if folder is not None else "", inherited_dirs=[str(path) for path in inherited]
    )
    return replace(spec, target=target)


def own_code(ref: BundleRef) -> dict[str, str]:
    """File of the contract -> SHA-256 of what the target brings in its place; empty where all is built in."""
    return {name: _digest(getattr(ref, name)) for name in ref.own_files}


def judged_by(ref: BundleRef) -> str:
    """Whose check it is that passes or refuses, for whoever reads a result."""
    digests = own_code(ref)
    if "check" not in digests:
        place = ref.check.partition(":")[2]
        own = ", ".join(f"{name}.py" for name in digests)
        return f"judged by {place}" + (f" on the target's own {own}" if own else "")
    kind = "program" if ref.check.startswith("program:") else "check.py"
    others = [f"{name}.py {digest[:16]}" for name, digest in digests.items() if name != "check"]
    beside = f" (beside {', '.join(others)})" if others else ""
    return f"judged by the target's own {kind}, sha256 {digests['check']}{beside}"


def tree_differences(ours: Path, theirs: Path) -> list[str]:
    """Relative paths of files that differ between two folders, or that only one of them has."""
    left, right = (digest_tree(folder) if folder.is_dir() else {} for folder in (ours, theirs))
    return [name for name in sorted({*left, *right}) if left.get(name) != right.get(name)]


def _place(spec: Spec, folder: Path, destination: Path) -> Path:
    if spec.target.dir and folder == Path(spec.target.dir):
        return destination
    number = [Path(each) for each in spec.target.inherited_dirs].index(folder)
    return destination / INHERITED / f"{number:02d}"


def _owner(path: Path, folders: list[Path]) -> Path:
    holding = [folder for folder in folders if path.is_relative_to(folder)]
    return max(holding, key=lambda folder: len(folder.parts))


def _digest(source: str) -> str:
    kind, _, place = source.partition(":")
    if kind == "file":
        return digest_file(Path(place))
    program = json.loads(place)
    files = [Path(program["folder"]) / word for word in program["argv"]]
    return digest_of([program["argv"], *(digest_file(path) for path in files if path.is_file())])
