"""Linear layers in bf16 on the device."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .device import compute_device
from .parameters import Parameters


class Linear:
    """`y = x W^T`, bf16 in and out."""

    def __init__(self, weight: Tensor, *, parameters: Parameters) -> None:
        self.weight = weight.to(device=compute_device(parameters), dtype=torch.bfloat16)

    def __call__(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.weight)
