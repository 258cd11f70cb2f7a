"""Where a model's files come from: one function per kind of source. Conversion runs in a child process."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from vibeserve.core.documents import to_data
from vibeserve.errors import SpecError, WeightsError
from vibeserve.spec import Modality, Model, SourceKind
from vibeserve.weights.copied import copy_model
from vibeserve.weights.packages import is_folder, package_file, package_folder

LAYOUT_HINT = "a local folder in transformers' layout (config.json beside *.safetensors)"
FOLDER_HINT = "a local folder with the model's files"
CONVERT_TIMEOUT_S = 1800.0


def build(model: Model, *, destination: Path, target_dir: Path | None) -> dict[str, Any]:
    """Fill the empty folder `destination`; returns `num_parameters`, `dtypes` and `versions`."""
    kind = model.source.kind
    if kind is SourceKind.hub and not model.revision:
        raise SpecError(
            f"model '{model.id}': a hub model needs a pinned revision",
            hint="set model.revision to a commit of the repository",
        )
    if kind is SourceKind.seeded:
        return _convert(_seeded_job(model), destination=destination)
    folder = resolve_folder(model, target_dir=target_dir) if kind is SourceKind.folder else None
    if model.modality is Modality.speech and kind is SourceKind.package:
        return _shipped_speech(model, destination=destination)
    if model.modality is Modality.image and folder is not None:
        return _convert({"kind": "image_folder", "folder": str(folder)}, destination=destination)
    if model.modality is not Modality.text:
        return copy_model(model, folder=folder, destination=destination)
    if folder is not None:
        return _convert({"kind": "folder", "folder": str(folder)}, destination=destination)
    if kind is SourceKind.hub:
        return _convert({"kind": "hub", "id": model.id, "revision": model.revision}, destination=destination)
    if not is_folder(model.source):
        original = package_file(model.source, destination=destination)
        return _convert({"kind": "gguf", "gguf": str(original)}, destination=destination)
    shipped = package_folder(model.source, destination=destination)
    facts = _convert({"kind": "folder", "folder": str(shipped)}, destination=destination)
    shutil.rmtree(destination / "downloads", ignore_errors=True)
    return facts


def _shipped_speech(model: Model, *, destination: Path) -> dict[str, Any]:
    """Moonshine's own files out of its wheel."""
    shipped = package_folder(model.source, destination=destination)
    facts = _convert({"kind": "moonshine", "folder": str(shipped)}, destination=destination)
    shutil.rmtree(destination / "downloads", ignore_errors=True)
    return facts


def _seeded_job(model: Model) -> dict[str, Any]:
    return {
        "kind": "seeded",
        "architecture": model.architecture,
        "is_causal": model.modality is Modality.text,
        "modality": model.modality.value,
        "speech_encoder": to_data(model.speech_encoder),
        "image_head": to_data(model.image_head),
        "seed": model.source.seed,
        "config": to_data(model.source.config),
    }


def resolve_folder(model: Model, *, target_dir: Path | None) -> Path:
    """The declared local folder. That of a text model must hold `config.json`."""
    source, hint = model.source, LAYOUT_HINT if model.modality is Modality.text else FOLDER_HINT
    if not source.path:
        raise WeightsError(f"model.source.path is empty\nnext: name {hint}")
    folder = Path(source.path).expanduser()
    if not folder.is_absolute():
        folder = (target_dir or Path.cwd()) / folder
    if not folder.is_dir():
        raise WeightsError(f"{folder}: no such folder\nnext: point model.source.path at {hint}")
    if model.modality is Modality.text and not (folder / "config.json").is_file():
        raise WeightsError(f"{folder}: no config.json, so not a model folder\nnext: point model.source.path at {hint}")
    return folder.resolve()


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
    if job["kind"] == "image_folder":
        return "docs/image.md has the layout of such a folder"
    return "the folder or file must hold a causal language model that this transformers version loads"


def _tail(text: str, *, num_lines: int = 12) -> str:
    return "\n".join(f"  | {line}" for line in text.strip().splitlines()[-num_lines:])
