"""Linear layers with weights in the baseline's dtype, as autocast has them: inputs are cast, residuals stay in f32.
Part of a baseline's workspace."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .flavour import DTYPE
from .parameters import Parameters

KIND = getattr(torch, DTYPE)


class Linear:
    """`y = x W^T + b`."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, parameters: Parameters) -> None:
        self.weight = weight.to(KIND)
        self.bias = None if bias is None else bias.to(KIND)

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(x.to(KIND), self.weight, self.bias).float()
