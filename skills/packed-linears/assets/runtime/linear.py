"""Linear layers over weights that oneDNN has laid out once for its own kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from .parameters import Parameters

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# Rows that the layout is chosen for: a decode batch. Other row counts work, with a layout that may not be their best.
LAYOUT_ROWS = 16


class Linear:
    """`y = x W^T` with a weight in oneDNN's blocked layout.

    `packed_dtype` float32 computes in f32 from twice the bytes. bfloat16 keeps the bytes of the checkpoint and rounds
    activations to bf16, which is fast only where the processor multiplies bf16 (AMX, AVX512_BF16).
    """

    def __init__(self, weight: Tensor, *, parameters: Parameters) -> None:
        self.dtype = DTYPES[parameters.packed_dtype]
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(self.dtype).contiguous(), LAYOUT_ROWS)

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x.to(self.dtype), self.weight, None, "none", [], "")
        return y.float()
