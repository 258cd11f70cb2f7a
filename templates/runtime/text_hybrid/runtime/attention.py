"""Rotary embedding, where the model has one, and grouped-query attention over the KV cache, segment by segment."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .hybrid import HybridConfig
from .interfaces import Batch, Segment
from .kv_cache import KVCache
from .parameters import Parameters
from .rotary import Rotary


class Attention:
    """PyTorch's scaled-dot-product attention, one call per segment."""

    def __init__(self, config: HybridConfig, *, parameters: Parameters) -> None:
        self.num_groups = config.num_heads // config.num_kv_heads
        self.rotary = Rotary(config, num_positions=parameters.max_context_tokens)

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, *, layer: int, batch: Batch, kv_cache: KVCache
    ) -> Tensor:
        query, key = self.rotary(query, batch.positions), self.rotary(key, batch.positions)
        output = torch.empty_like(query)
        for segment in batch.segments:
            rows = slice(segment.start_row, segment.stop_row)
            keys = kv_cache.keys[layer][segment.slot, :, : segment.stop_position]
            values = kv_cache.values[layer][segment.slot, :, : segment.stop_position]
            keys[:, segment.start_position :] = key[rows].transpose(0, 1)
            values[:, segment.start_position :] = value[rows].transpose(0, 1)
            output[rows] = self._attend(query[rows], keys, values, segment)
        return output.flatten(1)

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor, segment: Segment) -> Tensor:
        """query [num_rows, num_heads, head_dim], keys and values [num_kv_heads, context, head_dim] -> as query."""
        num_rows, num_context = segment.num_rows, segment.stop_position
        keys = keys.repeat_interleave(self.num_groups, dim=0)
        values = values.repeat_interleave(self.num_groups, dim=0)
        mask = None
        if num_rows > 1:
            mask = torch.ones(num_rows, num_context, dtype=torch.bool).tril(diagonal=segment.start_position)
        attended = functional.scaled_dot_product_attention(
            query.transpose(0, 1).unsqueeze(0), keys.unsqueeze(0), values.unsqueeze(0), attn_mask=mask
        )
        return attended.squeeze(0).transpose(0, 1)
