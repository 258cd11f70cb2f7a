"""Digests of what a run is made from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.core.digests import framework_digest
from vibeserve.core.documents import digest_file, digest_of, digest_tree, to_data
from vibeserve.errors import SpecError
from vibeserve.hardware import HardwareFacts, identity
from vibeserve.modalities.sources import contract_files, target_folders
from vibeserve.skills import library_digest
from vibeserve.spec import Hardware, SourceKind, Spec
from vibeserve.workloads import WORKLOAD_FILES

if TYPE_CHECKING:
    from collections.abc import Iterator


def input_digests(spec: Spec, *, facts: HardwareFacts | None) -> dict[str, str]:
    """Digest by input: framework, skills, lock, model, target, hardware. Without facts of the machine that would run it
    the hardware is what is declared of it."""
    return {
        "framework": framework_digest(),
        "skills": library_digest(spec),
        "lock": digest_of(dict(_installed())),
        "model": model_digest(spec),
        "target": target_digest(spec),
        **({"recording": recording_digest(spec)} if spec.agents.recording else {}),
        **({"seed": spec.seed.digest} if spec.seed.digest else {}),
        "hardware": digest_of(identity(facts) if facts else declared_identity(spec.hardware)),
    }


def declared_identity(hardware: Hardware) -> dict[str, Any]:
    """What names hardware that nobody has probed; never equal to a probed machine's identity."""
    return {
        "declared": hardware.name,
        "kind": hardware.kind,
        "count": hardware.count,
        "memory_gib": round(hardware.memory_gib),
        "sm": hardware.sm,
    }


def model_digest(spec: Spec) -> str:
    """Digest of what the model's files are made from; a local folder is digested file by file."""
    model = spec.model
    content: dict[str, object] = {"id": model.id, "revision": model.revision, "source": to_data(model.source)}
    if model.source.kind is SourceKind.folder:
        start = spec.target.folder_of(model.source.path) or Path()
        folder = (start / Path(model.source.path).expanduser()).resolve()
        if not folder.is_dir():
            raise SpecError(
                f"model.source.path: no folder {folder}",
                problems=["the path is relative to the target's folder"],
                hint="correct model.source.path",
            )
        content["files"] = digest_tree(folder)
    return digest_of(content)


def target_digest(spec: Spec) -> str:
    """Digest of the files that a target brings beside its YAML: of its folders and of its workload."""
    roots = target_folders(spec)
    files = {_place(path, roots): digest_file(path) for path in contract_files(spec)}
    for name in WORKLOAD_FILES:
        if getattr(spec.workload, name):
            files[f"workload.{name}"] = digest_file(_whole(spec, getattr(spec.workload, name)))
    return digest_of(files)


def recording_digest(spec: Spec) -> str:
    """Digest of the search that is replayed: its folder's files."""
    folder = Path(spec.agents.recording).expanduser()
    if not folder.is_dir():
        raise SpecError(
            f"agents.recording: no folder {folder.resolve()}",
            hint="name an artifact, such as artifacts/smollm2_cpu/latest",
        )
    inner = folder / "recording"
    return digest_of(digest_tree(inner if inner.is_dir() else folder))


def _place(path: Path, roots: list[Path]) -> str:
    """Position of its folder, and the path in it: the same wherever the repository lies."""
    number, root = next((number, root) for number, root in enumerate(roots) if path.is_relative_to(root))
    return f"{number}/{path.relative_to(root).as_posix()}"


def _whole(spec: Spec, path: str) -> Path:
    return (spec.target.folder_of(path) or Path()) / Path(path).expanduser()


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
