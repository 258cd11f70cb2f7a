"""A copy of a model whose weights differ by less than 8 bits can tell: inside the cells of int8's rounding.

Each weight of a layer's matrices moves within the interval that symmetric int8 rounds to one value, by scales of a row
and of 32, 64 and 128 weights alike. What computes with 16 bits or more answers differently; what rounds to
int8 when it loads holds the same numbers as before.
"""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vibeserve.weights.damaged import WEIGHTS_FILE

if TYPE_CHECKING:
    from torch import Tensor

GROUPS = (32, 64, 128)
"""weights with a scale of their own, beside one scale a row: what GGUF's Q8_0, torchao, GPTQ and AWQ use"""
LEVELS = 127
KEPT_STEPS = 0.08
"""so near the border of a cell no weight goes: scales are stored in 16 bits, and sums rounded"""
UNQUANTISED = ("embed", "lm_head", "wte", "wpe", "output.weight")
"""parts of names of matrices that int8 runtimes often leave as they are"""
DTYPES = {"BF16": "bfloat16", "F32": "float32", "F16": "float16"}


def nudge(model_dir: Path, *, destination: Path) -> int:
    """Copy the folder `model_dir` to `destination` (which must not exist) with its weights nudged; returns the number
    of matrices that changed, 0 where no safetensors file holds any of 16 or 32 bits.

    A pure function of the files; folders of one model in several formats (f32, bf16) get the same differences.
    `weights.json` is left out: its digests would not hold.
    """
    shutil.copytree(model_dir, destination, ignore=shutil.ignore_patterns(WEIGHTS_FILE), symlinks=False)
    num_matrices = 0
    for path in sorted(destination.rglob("*.safetensors")):
        path.chmod(0o644)
        num_matrices += _nudge_file(path)
    return num_matrices


def _nudge_file(path: Path) -> int:
    """Eight bytes of length, little endian, so many bytes of JSON, then the tensors' bytes."""
    import numpy as np
    import torch

    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header: dict[str, Any] = json.loads(stream.read(length))
    data = np.memmap(path, dtype=np.uint8, mode="r+", offset=8 + length)
    num_matrices = 0
    for name, tensor in sorted(header.items()):
        if name == "__metadata__" or len(tensor["shape"]) != 2 or tensor["dtype"] not in DTYPES:
            continue
        if any(part in name for part in UNQUANTISED):
            continue
        start, end = tensor["data_offsets"]
        view = torch.from_numpy(data[start:end]).view(getattr(torch, DTYPES[tensor["dtype"]])).view(tensor["shape"])
        base = view.to(torch.bfloat16).float()
        change = nudged(base) - base
        view.copy_((view.float() + change).to(view.dtype))
        num_matrices += bool(change.any())
    data.flush()
    return num_matrices


def nudged(weight: Tensor) -> Tensor:
    """`weight` [rows, columns] on the bf16 grid, moved on that grid as far as every scale's cell lets it."""
    import torch

    up, down = torch.full_like(weight, torch.inf), torch.full_like(weight, torch.inf)
    is_largest = torch.zeros_like(weight, dtype=torch.bool)
    for size in {weight.shape[1], *(size for size in GROUPS if weight.shape[1] % size == 0)}:
        groups = weight.view(weight.shape[0], -1, size)
        largest = groups.abs().amax(-1, keepdim=True)
        step = (largest / LEVELS).clamp_min(1e-12)
        place = groups / step
        beyond = place - place.round()
        up = torch.minimum(up, ((0.5 - KEPT_STEPS - beyond) * step).view_as(weight))
        down = torch.minimum(down, ((0.5 - KEPT_STEPS + beyond) * step).view_as(weight))
        # a group's scale must stay what it is: its largest weight keeps still, and none outgrows it
        is_largest |= (groups.abs() == largest).view_as(weight)
        up = torch.minimum(up, (largest - groups).view_as(weight))
        down = torch.minimum(down, (largest + groups).view_as(weight))
    up, down = up.clamp_min(0.0), down.clamp_min(0.0)
    room = torch.where(up > down, up, -down)
    result = weight.clone()
    for share in (0.5, 1.0):
        moved = (weight + share * room).to(torch.bfloat16).float()
        is_inside = (moved - weight <= up) & (weight - moved <= down) & ~is_largest
        result = torch.where(is_inside, moved, result)
    return result
