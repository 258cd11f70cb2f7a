"""Linear layers: f32 compute from the bf16 weights."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .parameters import Parameters


class Linear:
    """`y = x W^T + b` with f32 copies. x [..., num_rows, in_features]."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, parameters: Parameters) -> None:
        self.weight = weight.to(torch.float32)
        self.bias = None if bias is None else bias.to(torch.float32)

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight, self.bias)
