"""Gated delta rule by its definition: one segment after the other, one token after the other."""

from __future__ import annotations

import torch
from torch import Tensor

from .delta_rule import convolve, split_heads, step
from .hybrid import HybridCacheLike, HybridConfig
from .interfaces import Batch
from .parameters import Parameters


class Recurrence:
    """See `hybrid.RecurrenceLike`."""

    def __init__(self, config: HybridConfig, *, parameters: Parameters) -> None:
        self.config = config

    def __call__(
        self, mixed: Tensor, decay: Tensor, beta: Tensor, *, kernel: Tensor, layer: int, batch: Batch,
        kv_cache: HybridCacheLike,
    ) -> Tensor:
        config = self.config
        output = torch.empty(len(mixed), config.linear_num_value_heads, config.linear_value_head_dim)
        for segment in batch.segments:
            window, state = kv_cache.windows[layer][segment.slot], kv_cache.states[layer][segment.slot]
            rows = slice(segment.start_row, segment.stop_row)
            inputs = torch.cat((window, mixed[rows]))
            window.copy_(inputs[-len(window) :])
            query, key, value = split_heads(convolve(inputs, kernel), config)
            for row in range(segment.num_rows):
                at = segment.start_row + row
                output[at] = step(state, query[row], key[row], value[row], decay=decay[at], beta=beta[at])
        return output
