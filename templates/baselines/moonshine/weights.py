"""The model as transformers loads it, in place of the scaffold's tensors. Part of a baseline's workspace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .flavour import FOLDER
from .scaffold_weights import WEIGHTS_DIR, load_config

__all__ = ["WEIGHTS_DIR", "load_config", "load_weights"]


def load_weights(model_dir: Path) -> Any:
    """A transformers model, in the dtype of its folder."""
    import torch
    from transformers import MoonshineStreamingForConditionalGeneration

    dtype = torch.bfloat16 if FOLDER == "bf16" else torch.float32
    return MoonshineStreamingForConditionalGeneration.from_pretrained(
        model_dir / FOLDER, dtype=dtype, attn_implementation="sdpa"
    ).eval()
