"""The cache of materialised models: built once under a lock, moved into place whole, trusted only by digest."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.core.documents import digest_of, digest_tree, read_document, to_data, write_document
from vibeserve.errors import WeightsError
from vibeserve.spec import Modality, Model, SourceKind
from vibeserve.weights.sources import build, resolve_folder

if TYPE_CHECKING:
    from tokenizers import Tokenizer

DOCUMENT = "weights.json"
LAYOUT = 1
"""raised when the content of a model folder changes for the same source: old folders are then not reused"""


@dataclass(frozen=True, kw_only=True)
class WeightsFile:
    """Document `weights.json` of a model folder."""

    model_id: str
    revision: str
    source: dict[str, Any]
    files: dict[str, str]
    """relative path -> SHA-256 of every file but this one"""
    num_parameters: int
    dtypes: dict[str, str]
    """folder -> dtype of its weights"""
    versions: dict[str, str]
    """libraries that converted the weights"""
    layout: int = LAYOUT
    schema_version: int = 1


@dataclass(frozen=True, kw_only=True)
class ModelDir:
    """A materialised model: `f32/` and `bf16/` (text models, seeded ones), perhaps `original/`, and `weights.json`."""

    path: Path
    digest: str
    """over the digests of all files: equal digests are equal models"""
    num_parameters: int


def materialise(model: Model, *, cache: Path, target_dir: Path | None = None) -> ModelDir:
    """The model's folder under `cache`, reused when every byte matches its recorded digest, else built anew.

    `target_dir` is where relative `source.path` entries start. Safe against concurrent callers (file lock), kills
    (built beside its place and renamed) and corruption (all files are hashed on every call, about a second per GB).
    Raises `WeightsError` when the files cannot be had or do not match a declared digest.
    """
    root = cache / "weights"
    root.mkdir(parents=True, exist_ok=True)
    name = _folder_name(model, target_dir=target_dir)
    with _exclusive(root / f".{name}.lock"):
        _remove_leftovers(root, name)
        place = root / name
        if place.is_dir() and not model_problems(place):
            return read_model_dir(place)
        temporary = Path(tempfile.mkdtemp(dir=root, prefix=f".{name}.partial-"))
        try:
            facts = build(model, destination=temporary, target_dir=target_dir)
            _write_weights_file(temporary, model, facts)
            _flush_tree(temporary)
            _replace_folder(temporary, place)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        return read_model_dir(place)


def model_problems(path: Path) -> list[str]:
    """Why the folder at `path` may not be used; empty when its document is whole and every file matches."""
    try:
        document = _read(path)
    except WeightsError as error:
        return [str(error)]
    found = digest_tree(path, ignore=(DOCUMENT,))
    problems = [f"{name}: missing" for name in document.files if name not in found]
    problems += [f"{name}: not in {DOCUMENT}" for name in found if name not in document.files]
    problems += [
        f"{name}: digest differs"
        for name in document.files
        if found.get(name, document.files[name]) != document.files[name]
    ]
    return problems


def read_model_dir(path: Path) -> ModelDir:
    """The facts in `weights.json` without hashing the files again; `WeightsError` when it cannot be read."""
    document = _read(path)
    return ModelDir(path=path, digest=digest_of(document.files), num_parameters=document.num_parameters)


def load_tokenizer(model_dir: Path) -> Tokenizer:
    """The model's fast tokenizer, without padding or truncation."""
    from tokenizers import Tokenizer

    path = model_dir / "f32" / "tokenizer.json"
    if not path.is_file():
        raise WeightsError(f"{path}: no tokenizer\nnext: materialise the model again (`vibeserve +target=...` does)")
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def end_token_ids(model_dir: Path) -> frozenset[int]:
    """The model's end tokens by its generation config; a reply that does not ignore EOS ends with one of them."""
    config = json.loads((model_dir / "f32" / "generation_config.json").read_text(encoding="utf-8"))
    declared = config.get("eos_token_id")
    return frozenset(declared if isinstance(declared, list) else [] if declared is None else [declared])


def _read(path: Path) -> WeightsFile:
    from dacite import DaciteError

    try:
        document = read_document(path / DOCUMENT, WeightsFile)
    except (OSError, ValueError, DaciteError) as error:
        raise WeightsError(f"{path / DOCUMENT}: not readable ({error})") from error
    if document.layout != LAYOUT:
        raise WeightsError(f"{path / DOCUMENT}: layout {document.layout}, this version reads {LAYOUT}")
    return document


def _folder_name(model: Model, *, target_dir: Path | None) -> str:
    """Readable slug and a digest over all that decides the content."""
    source = to_data(model.source)
    if model.source.kind is SourceKind.folder:
        folder = resolve_folder(model, target_dir=target_dir)
        # where a folder lies does not matter, what is in it does
        source = {"kind": "folder", "files": digest_tree(folder)}
    content = {
        "layout": LAYOUT,
        "id": model.id,
        "revision": model.revision,
        "architecture": model.architecture,
        "source": source,
    }
    if model.modality is not Modality.text:
        content["modality"] = model.modality.value
    if model.modality is Modality.speech:
        content["speech_encoder"] = to_data(model.speech_encoder)
    if model.modality is Modality.image:
        content["image_head"] = to_data(model.image_head)
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", model.id).strip("-.").lower() or "model"
    return f"{slug}-{digest_of(content)[:16]}"


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path`; the kernel drops it when the holder dies."""
    import fcntl

    with path.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def _remove_leftovers(root: Path, name: str) -> None:
    for stale in root.glob(f".{name}.*-*"):
        shutil.rmtree(stale, ignore_errors=True)


def _write_weights_file(folder: Path, model: Model, facts: dict[str, Any]) -> None:
    document = WeightsFile(
        model_id=model.id,
        revision=model.revision,
        source=to_data(model.source),
        files=digest_tree(folder, ignore=(DOCUMENT,)),
        num_parameters=int(facts["num_parameters"]),
        dtypes=dict(facts["dtypes"]),
        versions=dict(facts["versions"]),
    )
    write_document(folder / DOCUMENT, document)


def _flush_tree(folder: Path) -> None:
    """Everything on the disk before the rename makes it visible."""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            continue
        if path.is_file():
            path.chmod(0o644)
        elif path.is_dir():
            path.chmod(0o755)
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    folder.chmod(0o755)


def _replace_folder(temporary: Path, place: Path) -> None:
    if place.exists():
        discarded = Path(tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}.discarded-"))
        place.rename(discarded / "old")
        temporary.rename(place)
        shutil.rmtree(discarded, ignore_errors=True)
    else:
        temporary.rename(place)
