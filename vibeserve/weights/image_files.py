"""What reading a user's own model that draws takes, whatever its layout. Child process only."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from vibeserve.errors import WeightsError

NEXT = "next: docs/image.md has the layout"
MAX_SHOWN = 3


def tokenizer_copier(folder: Path) -> Callable[[Path], None]:
    """Copies the tokenizer's files of `folder` to a place."""

    def copy(place: Path) -> None:
        for path in folder.glob("tokenizer*.json"):
            shutil.copyfile(path, place / path.name)

    return copy


def checked(
    tensors: Mapping[str, torch.Tensor], shapes: Mapping[str, tuple[int, ...]], *, folder: Path, unused: Sequence[str],
    unused_parts: Sequence[str] = (),
) -> dict[str, torch.Tensor]:  # fmt: skip
    """Those of `shapes`, in their order. Names that begin with one of `unused`, or hold one of `unused_parts`, are left
    out; WeightsError for others, for what is missing and for what has another shape."""
    unknown = [
        name for name in tensors
        if name not in shapes and not name.startswith(tuple(unused))
        and not any(part in name for part in unused_parts)
    ]  # fmt: skip
    wrong = [
        f"{name} is {tuple(tensors[name].shape)}, not {shape}"
        for name, shape in shapes.items() if name in tensors and tuple(tensors[name].shape) != shape
    ]  # fmt: skip
    missing = [name for name in shapes if name not in tensors]
    for what, found in (
        ("missing", missing), ("unknown", unknown), ("other than config.json says", wrong),
    ):  # fmt: skip
        if found:
            shown = ", ".join(found[:MAX_SHOWN]) + (f" and {len(found) - MAX_SHOWN} more" * (len(found) > MAX_SHOWN))
            raise WeightsError(f"{folder}: {what}: {shown}\n{NEXT}")
    return {name: tensors[name] for name in shapes}
