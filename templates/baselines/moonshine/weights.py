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
    from transformers import AutoConfig, MoonshineForConditionalGeneration, MoonshineStreamingForConditionalGeneration

    folder = model_dir / FOLDER
    is_streaming = AutoConfig.from_pretrained(folder).model_type == "moonshine_streaming"
    kind = MoonshineStreamingForConditionalGeneration if is_streaming else MoonshineForConditionalGeneration
    dtype = torch.bfloat16 if FOLDER == "bf16" else torch.float32
    return kind.from_pretrained(folder, dtype=dtype, attn_implementation="sdpa").eval()
