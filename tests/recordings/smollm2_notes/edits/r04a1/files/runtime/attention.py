"""Rotary tables; rotation and attention themselves are part of the native step (`native/attention.h`)."""

from __future__ import annotations

import torch
from torch import Tensor

from .interfaces import ModelConfig


def rotary_table(config: ModelConfig, *, num_positions: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every position's angles, each f32 [num_positions, head_dim / 2] (Su et al. 2021, RoFormer)."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float32), 1.0 / config.rope_theta**exponents)
    return angles.cos(), angles.sin()
