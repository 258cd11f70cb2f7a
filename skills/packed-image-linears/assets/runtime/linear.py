"""Linear layers over weights that oneDNN has laid out once for its own kernels, for the many rows of an image."""

from __future__ import annotations

import torch
from torch import Tensor

from .parameters import Parameters

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# Rows that the layout is chosen for: two branches of some hundreds. Other row counts work as well.
LAYOUT_ROWS = 512


class Linear:
    """`y = x W^T + b` with a weight in oneDNN's blocked layout; x [..., num_rows, in_features].

    `image_linear_dtype` float32 computes in f32. bfloat16 keeps the bytes of the checkpoint and rounds the products'
    inputs to bf16; sums, and everything between linear layers, stay in f32.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, parameters: Parameters) -> None:
        self._dtype = DTYPES[parameters.image_linear_dtype]
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight.to(self._dtype).contiguous(), LAYOUT_ROWS)
        self._bias = None if bias is None else bias.float()

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1]).to(self._dtype)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(rows, self._weight, None, "none", [], "").float()
        y = y if self._bias is None else y + self._bias
        return y.view(*x.shape[:-1], y.shape[-1])
