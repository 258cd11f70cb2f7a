"""Rotary embedding of the leading part of each head, or of nothing (Su et al. 2021, RoFormer)."""

from __future__ import annotations

import torch
from torch import Tensor

from .hybrid import HybridConfig


class Rotary:
    """Rotates the pairs (i, i + rotary_dim / 2) of a head's first `rotary_dim` values; 0 leaves everything as it is."""

    def __init__(self, config: HybridConfig, *, num_positions: int) -> None:
        self.size = config.rotary_dim
        if self.size:
            exponents = torch.arange(0, self.size, 2, dtype=torch.float32) / self.size
            angles = torch.outer(torch.arange(num_positions, dtype=torch.float32), 1.0 / config.rope_theta**exponents)
            self.cos, self.sin = angles.cos(), angles.sin()

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        """f32 [num_rows, num_heads, head_dim] -> the same."""
        if not self.size:
            return x
        cos, sin = self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)
        low, high, rest = x.split_with_sizes([self.size // 2, self.size // 2, x.shape[-1] - self.size], dim=-1)
        return torch.cat((low * cos - high * sin, high * cos + low * sin, rest), dim=-1)
