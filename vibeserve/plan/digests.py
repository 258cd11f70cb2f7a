"""Digests of what a run is made from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from vibeserve.core.digests import framework_digest
from vibeserve.core.documents import digest_of, digest_tree, to_data
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.hardware import HardwareFacts, identity
from vibeserve.spec import Model, SourceKind, Spec

if TYPE_CHECKING:
    from collections.abc import Iterator


def input_digests(spec: Spec, *, facts: HardwareFacts) -> dict[str, str]:
    """Digest by input: framework, skills, lock, model, hardware."""
    return {
        "framework": framework_digest(),
        "skills": digest_of(digest_tree(data_dir("skills"))),
        "lock": digest_of(dict(_installed())),
        "model": model_digest(spec.model, target_dir=Path(spec.target.dir)),
        "hardware": digest_of(identity(facts)),
    }


def model_digest(model: Model, *, target_dir: Path) -> str:
    """Digest of what the model's files are made from; a local folder is digested file by file."""
    content: dict[str, object] = {"id": model.id, "revision": model.revision, "source": to_data(model.source)}
    if model.source.kind is SourceKind.folder:
        folder = (target_dir / Path(model.source.path).expanduser()).resolve()
        if not folder.is_dir():
            raise SpecError(
                f"model.source.path: no folder {folder}",
                problems=["the path is relative to the target's folder"],
                hint="correct model.source.path",
            )
        content["files"] = digest_tree(folder)
    return digest_of(content)


def _installed() -> Iterator[tuple[str, str]]:
    """Installed version of each direct dependency of this package: what the framework runs on."""
    from importlib import metadata

    for requirement in metadata.requires("vibeserve") or []:
        name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
        if "extra ==" in requirement:
            continue
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            yield name, "absent"
