"""Linear layers over bf16 panels: 16 bits per weight in memory, widened to f32 in registers (`native/product.h`)."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor
from torch.nn import functional

from . import build, placement
from .parameters import Parameters

PANEL_COLUMNS = 16
"""output columns of a panel, as in `native/product.h`"""
FIXED_GROUP = 64
"""values with a common scale, as in `native/fixed.h`"""
LARGEST_WEIGHT = 32767
LARGEST_GROUP_SUM = (1 << 17) - FIXED_GROUP
"""leaves room for the rounding of every value"""
MIN_UNIT = 1e-30
"""of columns of zeros"""


class Linear:
    """`y = x W^T`; every output is one f32 sum in ascending order, so rows do not depend on each other."""

    def __init__(self, weight: Tensor, *, parameters: Parameters) -> None:
        self.num_out, self.num_in = weight.shape
        self.panels = pack(weight)
        self.units = fixed_point_units(weight)
        self._library = build.load_library("llama")

    def __call__(self, x: Tensor, *, is_fixed: bool = False) -> Tensor:
        """In f32, or in the 16-bit fixed point that prompts are multiplied in."""
        x = x.contiguous()
        output = torch.empty(len(x), len(self.panels) * PANEL_COLUMNS)
        sizes = (self.num_in, len(self.panels), len(x))
        panels, units, rows, result = (
            ctypes.c_void_p(tensor.data_ptr()) for tensor in (self.panels, self.units, x, output)
        )
        if is_fixed:
            self._library.llama_multiply_fixed(panels, units, *sizes, rows, result)
        else:
            self._library.llama_multiply(panels, *sizes, rows, result)
        return output[:, : self.num_out]


def pack(weight: Tensor) -> Tensor:
    """bf16 [num_out, num_in] -> int16 [panels, num_in, 8, 2]: of each 16 columns i beside i + 8, bits unchanged."""
    num_out, num_in = weight.shape
    bits = functional.pad(weight.contiguous().view(torch.int16), (0, 0, 0, -num_out % PANEL_COLUMNS))
    panels = bits.view(-1, 2, PANEL_COLUMNS // 2, num_in).permute(0, 3, 2, 1)
    packed = placement.empty(panels.shape, dtype=torch.int16)
    return packed.copy_(panels)


def alternate(first: Tensor, second: Tensor) -> Tensor:
    """Panels of two weights of the same shape in turns."""
    packed = placement.empty((2 * len(first), *first.shape[1:]), dtype=first.dtype)
    packed[0::2], packed[1::2] = first, second
    return packed


def fixed_point_units(weight: Tensor) -> Tensor:
    """What one unit of each column's int16 is worth in `native/fixed.h`, f32 [panels, 16].

    Values stay within int16 and the magnitudes of any 64 of them below 2^17 in sum, so that their products with 15-bit
    activations add up in int32.
    """
    num_out, num_in = weight.shape
    padded = functional.pad(weight.float().abs(), (0, -num_in % FIXED_GROUP, 0, -num_out % PANEL_COLUMNS))
    sums = padded.view(len(padded), -1, FIXED_GROUP).sum(-1).amax(-1)
    units = torch.maximum(padded.amax(-1) / LARGEST_WEIGHT, sums / LARGEST_GROUP_SUM)
    return units.clamp(min=MIN_UNIT).view(-1, PANEL_COLUMNS)
