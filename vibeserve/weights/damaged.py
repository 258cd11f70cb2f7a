"""A damaged copy of a model: every matrix keeps its shape, its format and its values, in another order.

Rows are permuted by seed. In safetensors and in GGUF a row is a run of whole bytes, also of block-quantised types, so
no value has to be understood, none becomes NaN, and nothing that a kernel's speed depends on changes.
"""

from __future__ import annotations

import json
import random
import shutil
import struct
from pathlib import Path
from typing import Any

WEIGHTS_FILE = "weights.json"
MIN_ROWS = 2


def damage(model_dir: Path, *, destination: Path, seed: int) -> int:
    """Copy the folder `model_dir` to `destination` (which must not exist) with its weights damaged; returns the number
    of matrices, 0 where no file is safetensors or GGUF.

    A pure function of the files and `seed`. Files with the same name and shapes in several folders (f32, bf16) get the
    same order. `weights.json` is left out: its digests would not hold.
    """
    shutil.copytree(model_dir, destination, ignore=shutil.ignore_patterns(WEIGHTS_FILE), symlinks=False)
    num_matrices = 0
    for path in sorted(destination.rglob("*")):
        if not path.is_file():
            continue
        path.chmod(0o644)
        if path.suffix == ".safetensors":
            num_matrices += _damage_safetensors(path, seed=seed)
        elif path.suffix == ".gguf":
            num_matrices += _damage_gguf(path, seed=seed)
    return num_matrices


def _damage_safetensors(path: Path, *, seed: int) -> int:
    """Eight bytes of length, little endian, so many bytes of JSON, then the tensors' bytes."""
    import numpy as np

    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header: dict[str, Any] = json.loads(stream.read(length))
    data = np.memmap(path, dtype=np.uint8, mode="r+", offset=8 + length)
    num_matrices = 0
    for name, tensor in sorted(header.items()):
        if name == "__metadata__" or len(tensor["shape"]) < 2:
            continue
        start, end = tensor["data_offsets"]
        num_matrices += _permute_rows(data[start:end], num_rows=int(tensor["shape"][0]), key=f"{seed}-{name}")
    data.flush()
    return num_matrices


def _damage_gguf(path: Path, *, seed: int) -> int:
    from gguf import GGUFReader

    reader = GGUFReader(path, "r+")
    num_matrices = 0
    for tensor in reader.tensors:
        if len(tensor.shape) < 2:
            continue
        # GGUF lists dimensions from the fastest one; rows are the last
        rows = tensor.data.view("uint8").reshape(-1)
        num_matrices += _permute_rows(rows, num_rows=int(tensor.shape[-1]), key=f"{seed}-{tensor.name}")
    reader.data.flush()
    return num_matrices


def _permute_rows(data: Any, *, num_rows: int, key: str) -> int:
    """In place; 1 where something changed. `data` is a flat array of bytes."""
    if num_rows < MIN_ROWS or data.size % num_rows:
        return 0
    rows = data.reshape(num_rows, -1)
    order = list(range(num_rows))
    random.Random(key).shuffle(order)
    rows[:] = rows[order]
    return 1
