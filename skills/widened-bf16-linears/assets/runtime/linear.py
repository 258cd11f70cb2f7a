"""Linear layers whose weights stay bf16 in memory and are widened to f32 in registers (`native/panels.h`)."""

from __future__ import annotations

import ctypes
import weakref
from functools import cache

import torch
from torch import Tensor

from .build import load_library
from .parameters import Parameters


class Linear:
    """`y = x W^T` in f32 over a bf16 weight that was packed into panels of 32 columns once.

    Below `parameters.fixed_point_min_rows` rows a row's result does not depend on the other rows. From there on, where
    the processor has AVX-512 VNNI, the product is in 16-bit fixed point (`native/fixed.h`): prompts, not decode steps.
    """

    def __init__(self, weight: Tensor, *, parameters: Parameters) -> None:
        library = native()
        weight = weight.to(torch.bfloat16).contiguous()
        self.num_out, self.num_in = weight.shape
        self.min_fixed_rows = parameters.fixed_point_min_rows
        handle = library.linear_create(weight.data_ptr(), self.num_out, self.num_in, torch.get_num_threads())
        if not handle:
            raise MemoryError(f"no memory for a weight of {self.num_out} x {self.num_in}")
        self.handle = handle
        self._finalizer = weakref.finalize(self, library.linear_destroy, handle)

    def __call__(self, x: Tensor) -> Tensor:
        x = x.contiguous()
        y = torch.empty(len(x), self.num_out)
        native().linear_apply(self.handle, x.data_ptr(), len(x), self.min_fixed_rows, y.data_ptr())
        return y


@cache
def native() -> ctypes.CDLL:
    """`native/linear.cpp` with its signatures; its calls release the interpreter lock."""
    library = load_library("linear")
    library.linear_create.restype = ctypes.c_void_p
    library.linear_create.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int]
    library.linear_destroy.argtypes = [ctypes.c_void_p]
    library.linear_apply.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p,
    ]
    return library
