"""Threads and memory placement."""

from __future__ import annotations

import ctypes
import math
import mmap
from collections.abc import Sequence

import torch
from torch import Tensor

MIN_HUGE_BYTES = 4 << 20
"""below two huge pages of 2 MiB there is nothing to win"""


def configure_threads(num_threads: int) -> None:
    """Compute threads of the process. The cores come from the affinity that the process was started with."""
    torch.set_num_threads(num_threads)


def empty(shape: Sequence[int], *, dtype: torch.dtype) -> Tensor:
    """Uninitialised tensor, on huge pages where the kernel grants them.

    Reading weights from 4 KiB pages costs up to half of the memory bandwidth in address translation. The advice has to
    come before the first write, which faults the pages in; where it is not granted the tensor is an ordinary one.
    """
    tensor = torch.empty(tuple(shape), dtype=dtype)
    num_bytes = math.prod(shape) * tensor.element_size()
    if num_bytes >= MIN_HUGE_BYTES and hasattr(mmap, "MADV_HUGEPAGE"):
        page = mmap.PAGESIZE
        start = -(-tensor.data_ptr() // page) * page
        length = (tensor.data_ptr() + num_bytes - start) // page * page
        ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_HUGEPAGE)
    return tensor
