"""safetensors headers: dtypes and counts of parameters without a byte of the weights."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from vibeserve.errors import SpecError

MAX_HEADER_BYTES = 100 << 20
"""the format's own limit (safetensors 0.5, README)"""

DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


@dataclass(frozen=True, kw_only=True)
class WeightsHeader:
    """All safetensors files of one folder."""

    num_parameters: int
    dtype: str
    """of most parameters: float32, bfloat16, float16"""
    num_bytes: int
    files: tuple[str, ...]


def read_headers(folder: Path) -> WeightsHeader | None:
    """None where the folder holds no weights. SpecError for weights that are no safetensors or are quantised."""
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        pickles = sorted(path.name for pattern in ("*.bin", "*.pt", "*.pth") for path in folder.glob(pattern))
        if pickles:
            raise SpecError(
                f"{folder}: weights only as {', '.join(pickles)}",
                problems=["weights that are pickles are not read: a pickle can run any code"],
                hint="convert them to safetensors (save_pretrained of transformers does)",
            )
        return None
    by_dtype: dict[str, int] = {}
    num_bytes = 0
    for path in files:
        for name, entry in _header(path).items():
            if name == "__metadata__":
                continue
            by_dtype[entry["dtype"]] = by_dtype.get(entry["dtype"], 0) + prod(entry["shape"])
            num_bytes += entry["data_offsets"][1] - entry["data_offsets"][0]
    most = max(by_dtype, key=lambda dtype: by_dtype[dtype])
    if most not in DTYPES:
        raise SpecError(
            f"{folder}: most weights are {most}",
            problems=[f"init reads: {', '.join(DTYPES)}; the reference runs in float32"],
            hint="name the checkpoint that it was quantised from",
        )
    # integer tensors are buffers (position ids), not parameters
    num_parameters = sum(count for dtype, count in by_dtype.items() if dtype in DTYPES)
    names = tuple(path.name for path in files)
    return WeightsHeader(num_parameters=num_parameters, dtype=DTYPES[most], num_bytes=num_bytes, files=names)


def _header(path: Path) -> dict[str, Any]:
    """Eight bytes of length, little endian, then so many bytes of JSON."""
    with path.open("rb") as stream:
        start = stream.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 0 < length <= MAX_HEADER_BYTES:
            # a Git LFS pointer is the usual cause
            text = f"{path}: not a safetensors file ({path.stat().st_size} bytes)"
            raise SpecError(text, hint="fetch the file itself; a Git LFS pointer is not the weights")
        try:
            header = json.loads(stream.read(length))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise SpecError(f"{path}: its header is not JSON", hint="fetch the file again") from error
    if not isinstance(header, dict):
        raise SpecError(f"{path}: its header is not a JSON object", hint="fetch the file again")
    return header
