"""Linear layers: f32 compute from the bf16 weights."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from . import placement
from .parameters import Parameters


class Linear:
    """`y = x W^T` with an f32 copy of the weight."""

    def __init__(self, weight: Tensor, *, parameters: Parameters) -> None:
        self.weight = placement.empty(weight.shape, dtype=torch.float32)
        self.weight.copy_(weight)

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight)
