"""Models that no built-in modality converts: their files as they are. What they mean is for the target to say."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from vibeserve.errors import WeightsError
from vibeserve.spec import Model, SourceKind
from vibeserve.weights.headers import read_headers
from vibeserve.weights.hub import fetch_from_hub
from vibeserve.weights.packages import is_folder, package_file, package_folder

ORIGINAL = "original"
"""subfolder of a model folder: the files of the source, unchanged"""
FILES = (ORIGINAL, "f32")


def copy_model(model: Model, *, folder: Path | None, destination: Path) -> dict[str, Any]:
    """Fill `destination/original` from the source; returns `num_parameters`, `dtypes` and `versions`.

    `folder`: the resolved local folder of a model whose source is one.
    """
    original = destination / ORIGINAL
    if model.source.kind is SourceKind.hub:
        fetch_from_hub(model.id, revision=model.revision, destination=original)
    elif model.source.kind is SourceKind.package and not is_folder(model.source):
        package_file(model.source, destination=destination)
    elif model.source.kind is SourceKind.package:
        _copy(package_folder(model.source, destination=destination), original)
        shutil.rmtree(destination / "downloads", ignore_errors=True)
    elif folder is not None:
        _copy(folder, original)
    header = read_headers(original)
    return {
        "num_parameters": header.num_parameters if header else 0,
        "dtypes": {ORIGINAL: header.dtype} if header else {},
        "versions": {},
    }


def files_of(model_dir: Path) -> Path:
    """What a target's own code is given of a model folder: the source's files, else (seeded weights) the f32 ones.

    Raises WeightsError where neither is there.
    """
    for name in FILES:
        if (model_dir / name).is_dir():
            return model_dir / name
    raise WeightsError(f"{model_dir}: holds neither of {', '.join(FILES)}\nnext: materialise the model again")


def _copy(source: Path, destination: Path) -> None:
    """Every file but hidden ones and caches."""
    shutil.copytree(source, destination, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    if not any(path.is_file() for path in destination.rglob("*")):
        raise WeightsError(f"{source}: holds no files\nnext: put the model's files there")
