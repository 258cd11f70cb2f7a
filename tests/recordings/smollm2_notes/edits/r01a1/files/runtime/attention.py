"""Rotary embedding and grouped-query attention over the KV cache, segment by segment."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .interfaces import Batch, ModelConfig, Segment
from .kv_cache import KVCache
from .parameters import Parameters


class Attention:
    """PyTorch's scaled-dot-product attention, one call per segment."""

    def __init__(self, config: ModelConfig, *, parameters: Parameters) -> None:
        self.num_groups = config.num_heads // config.num_kv_heads
        self.cos, self.sin = rotary_table(config, num_positions=parameters.max_context_tokens)

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, *, layer: int, batch: Batch, kv_cache: KVCache
    ) -> Tensor:
        cos, sin = self.cos[batch.positions].unsqueeze(1), self.sin[batch.positions].unsqueeze(1)
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
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
        if segment.start_position == 0 and num_rows > 1:
            return self._attend_prompt(query, keys, values)
        # the query heads of a KV head are rows of one product, so that keys and values are read once, uncopied
        grouped = query.view(num_rows, -1, self.num_groups, query.shape[-1]).permute(1, 2, 0, 3).flatten(1, 2)
        mask = None
        if num_rows > 1:
            mask = torch.ones(num_rows, num_context, dtype=torch.bool).tril(diagonal=segment.start_position)
            mask = mask.repeat(self.num_groups, 1)
        attended = functional.scaled_dot_product_attention(
            grouped.unsqueeze(0), keys.unsqueeze(0), values.unsqueeze(0), attn_mask=mask
        )
        heads = attended.squeeze(0).unflatten(1, (self.num_groups, num_rows))
        return heads.permute(2, 0, 1, 3).reshape(query.shape)

    def _attend_prompt(self, query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """A whole prompt: the causal kernel skips the half that a mask would throw away."""
        keys = keys.repeat_interleave(self.num_groups, dim=0)
        values = values.repeat_interleave(self.num_groups, dim=0)
        attended = functional.scaled_dot_product_attention(
            query.transpose(0, 1).unsqueeze(0), keys.unsqueeze(0), values.unsqueeze(0), is_causal=True
        )
        return attended.squeeze(0).transpose(0, 1)


def rotary_table(config: ModelConfig, *, num_positions: int) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every position's angles, each f32 [num_positions, head_dim] (Su et al. 2021, RoFormer)."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float32), 1.0 / config.rope_theta**exponents)
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (i, i + head_dim / 2) of `x` [num_rows, num_heads, head_dim]: Llama's half-split layout."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin
