"""Which artifacts are meant, and what is read of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from vibeserve.artifact import read_manifest, verify_bytes
from vibeserve.artifact.sums import SUMS_NAME
from vibeserve.config.targets import project_root
from vibeserve.config.words import suggest
from vibeserve.core.documents import digest_of
from vibeserve.core.manifest import Manifest
from vibeserve.errors import SpecError

LATEST = "latest"


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One artifact of a comparison."""

    label: str
    """A, B, ..."""
    path: Path
    manifest: Manifest
    model: str
    precision: str
    """table of the headline: same_bytes or any"""
    workload: str
    """digest of the declared workload"""
    is_intact: bool
    """every byte is as it was packaged"""

    @property
    def fingerprint(self) -> str:
        """Equal where the certified hardware is the same."""
        return digest_of(self.manifest.hardware)[:12]

    @property
    def serves(self) -> tuple[str, str]:
        """What a number of it is about: model and workload."""
        return self.model, self.workload


def find_artifact(word: str, *, root: Path) -> Path:
    """Folder of the artifact that `word` names: a path (from here, or from the repository's root), TARGET (its
    latest one) or TARGET/PLAN_ID below `root`.

    SpecError lists what there is.
    """
    for folder in (Path(word), root / word, project_root() / word):
        for candidate in (folder, folder / LATEST):
            if _is_artifact(candidate):
                return candidate.resolve()
    there = sorted(_known(root))
    listed = ", ".join(there) or f"(none in {root})"
    raise SpecError(
        f"no artifact '{word}'{suggest(word, there)}",
        problems=[f"valid: a path, TARGET or TARGET/PLAN_ID; there are: {listed}"],
        hint="vibeserve +target=NAME makes one",
    )


def read_artifacts(words: Sequence[str], *, root: Path) -> list[Compared]:
    """The named artifacts, labelled in their order. SpecError for one that is missing, named twice or not readable."""
    paths = [find_artifact(word, root=root) for word in words]
    twice = sorted({str(path) for path in paths if paths.count(path) > 1})
    if twice:
        raise SpecError(f"one artifact is named twice: {', '.join(twice)}", hint="name two different ones")
    return [_read(path, label=_label(number)) for number, path in enumerate(paths)]


def _is_artifact(folder: Path) -> bool:
    return (folder / "manifest.json").is_file() or (folder / SUMS_NAME).is_file()


def _known(root: Path) -> Iterator[str]:
    for folder in root.glob("*/*"):
        if not folder.is_symlink() and _is_artifact(folder):
            yield folder.relative_to(root).as_posix()
            yield folder.parent.name


def _label(number: int) -> str:
    letter = ascii_uppercase[number % len(ascii_uppercase)]
    return letter if number < len(ascii_uppercase) else f"{letter}{number // len(ascii_uppercase)}"


def _read(path: Path, *, label: str) -> Compared:
    manifest = read_manifest(path)
    spec = _read_spec(path / "spec.yaml")
    return Compared(
        label=label, path=path, manifest=manifest, model=str(spec["model"]["id"]),
        precision=str(spec["evaluation"]["precision"]), workload=digest_of(spec["workload"])[:12],
        is_intact=not verify_bytes(path),
    )  # fmt: skip


def _read_spec(path: Path) -> dict[str, Any]:
    """The three groups that a comparison reads, as data: another version's spec may have other fields elsewhere."""
    import yaml

    try:
        spec = yaml.safe_load(path.read_text(encoding="utf-8"))
        return {group: dict(spec[group]) for group in ("model", "evaluation", "workload")}
    except (FileNotFoundError, UnicodeDecodeError, yaml.YAMLError, KeyError, TypeError, ValueError) as error:
        raise SpecError(f"{path} cannot be read as a composed spec: {error}", hint="vibeserve verify PATH") from error
