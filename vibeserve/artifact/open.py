"""Read parts of an artifact back: its spec, its golden data, a copy of its runtime that may be built and run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from vibeserve.artifact.sums import SUMS_NAME, parse_sums
from vibeserve.config.targets import project_root
from vibeserve.core.documents import from_data
from vibeserve.core.manifest import Golden
from vibeserve.errors import SpecError
from vibeserve.spec import Spec
from vibeserve.workloads import WORKLOAD_FILES


def resolve_artifact(path: Path) -> Path:
    """The artifact's folder, links such as `latest` followed. A relative path that is not here is looked up from the
    repository's root. Raises `SpecError` when there is none."""
    folder = (path if path.is_absolute() or path.exists() else project_root() / path).resolve()
    if not folder.is_dir():
        raise SpecError(
            f"{path} is no artifact: there is no such folder", hint="name a folder such as artifacts/<target>/latest"
        )
    if not (folder / "manifest.json").exists() and not (folder / SUMS_NAME).exists():
        raise SpecError(
            f"{path} is no artifact: it has neither manifest.json nor {SUMS_NAME}",
            hint="name a folder such as artifacts/<target>/latest",
        )
    return folder


def read_spec(artifact: Path) -> Spec:
    """The composed spec that the artifact was made from."""
    import yaml
    from dacite import DaciteError

    path = artifact / "spec.yaml"
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise TypeError("it holds no mapping")
        spec = from_data(Spec, data)
    except (FileNotFoundError, UnicodeDecodeError, yaml.YAMLError, DaciteError, TypeError) as error:
        raise SpecError(f"{path} cannot be read as a composed spec: {error}") from error
    for name in WORKLOAD_FILES:
        if getattr(spec.workload, name):
            # it is shipped with the artifact
            setattr(spec.workload, name, str((artifact / getattr(spec.workload, name)).resolve()))
    return spec


def read_golden(artifact: Path) -> Golden:
    """Certification's seeds and replies. Raises `SpecError` when the artifact has none that can be read."""
    from dacite import DaciteError

    folder = artifact / "golden"
    try:
        seeds = json.loads((folder / "seeds.json").read_text(encoding="utf-8"))
        lines = (folder / "replies.jsonl").read_text(encoding="utf-8").splitlines()
        return from_data(Golden, {**seeds, "replies": [json.loads(line) for line in lines]})
    except (FileNotFoundError, json.JSONDecodeError, DaciteError, TypeError) as error:
        raise SpecError(f"{folder} holds no golden data that can be read: {error}") from error


def read_golden_seeds(artifact: Path) -> dict[str, int]:
    """Seeds of certification's traffic, by load and start; empty where the artifact has no golden data."""
    path = artifact / "golden" / "seeds.json"
    try:
        seeds = json.loads(path.read_text(encoding="utf-8"))["seeds"]
        return {str(name): int(seed) for name, seed in seeds.items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpecError(f"{path} holds no seeds that can be read: {error}") from error


def unpack_runtime(artifact: Path, destination: Path) -> Path:
    """Copy the listed files of `runtime/` to `destination`; the artifact itself is never built or run in place."""
    sums = parse_sums((artifact / SUMS_NAME).read_text(encoding="utf-8"))
    for name in sums:
        if name.startswith("runtime/"):
            path = destination / name.removeprefix("runtime/")
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(artifact / name, path)
    return destination
