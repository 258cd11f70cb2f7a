"""Where the decoder runs, and a step's rows there."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .interfaces import Batch
from .parameters import Parameters

CONTEXT_STEP = 256
"""contexts of decode steps are rounded up to powers of two from here on, so that few shapes exist"""


def compute_device(parameters: Parameters) -> torch.device:
    """The declared device. Raises RuntimeError where it is not there: nothing falls back to the CPU by itself."""
    if parameters.device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError("parameter 'device' is cuda, and PyTorch sees no CUDA device")
    return torch.device(parameters.device)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceRows:
    """A step's rows on the device; the batch they come from has the segments."""

    batch: Batch
    token_ids: Tensor
    """int64 [num_rows], as the next two"""
    positions: Tensor
    slots: Tensor
    decode_rows: Tensor
    """int64: rows that are alone in their segment"""
    context: int
    """that covers every one of them"""


def rows_on(device: torch.device, batch: Batch, *, max_context_tokens: int) -> DeviceRows:
    slots = [segment.slot for segment in batch.segments for _ in range(segment.num_rows)]
    alone = [segment for segment in batch.segments if segment.num_rows == 1]
    longest = max((segment.stop_position for segment in alone), default=1)
    return DeviceRows(
        batch=batch,
        token_ids=batch.token_ids.to(device, non_blocking=True),
        positions=batch.positions.to(device, non_blocking=True),
        slots=torch.tensor(slots, dtype=torch.int64).to(device, non_blocking=True),
        decode_rows=torch.tensor([segment.start_row for segment in alone], dtype=torch.int64).to(device),
        context=context_bucket(longest, max_context_tokens=max_context_tokens),
    )


def context_bucket(num_tokens: int, *, max_context_tokens: int) -> int:
    """The next power of two of CONTEXT_STEP, at most the longest context."""
    size = CONTEXT_STEP
    while size < num_tokens:
        size *= 2
    return min(size, max_context_tokens)
