"""Rotary embedding and grouped-query attention on the device: all decode rows in one call, prompts one by one."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .device import DeviceRows, compute_device
from .interfaces import ModelConfig, Segment
from .kv_cache import KVCache
from .parameters import Parameters


class Attention:
    """PyTorch's scaled-dot-product attention over what the cache reads back."""

    def __init__(self, config: ModelConfig, *, parameters: Parameters) -> None:
        device = compute_device(parameters)
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
        positions = torch.arange(parameters.max_context_tokens, dtype=torch.float32)
        angles = torch.outer(positions, 1.0 / config.rope_theta**exponents)
        angles = torch.cat((angles, angles), dim=-1)
        self.cos, self.sin = angles.cos().to(device), angles.sin().to(device)

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, *, layer: int, rows: DeviceRows, kv_cache: KVCache
    ) -> Tensor:
        """query [num_rows, num_heads, head_dim], key and value [num_rows, num_kv_heads, head_dim], not rotated yet
        -> [num_rows, num_heads * head_dim]."""
        query, key = self.rotated(query, rows.positions), self.rotated(key, rows.positions)
        kv_cache.write(layer, key, value, slots=rows.slots, positions=rows.positions)
        output = torch.empty_like(query)
        alone = rows.decode_rows
        if len(alone):
            output[alone] = attend_rows(
                query[alone], layer=layer, slots=rows.slots[alone], positions=rows.positions[alone],
                context=rows.context, kv_cache=kv_cache,
            )  # fmt: skip
        for segment in rows.batch.segments:
            if segment.num_rows > 1:
                part = slice(segment.start_row, segment.stop_row)
                output[part] = attend_prompt(query[part], layer=layer, segment=segment, rows=rows, kv_cache=kv_cache)
        return output.flatten(1)

    def rotated(self, x: Tensor, positions: Tensor) -> Tensor:
        """Rotate the pairs (i, i + head_dim / 2) of `x` [num_rows, num_heads, head_dim], in f32 (Su et al. 2021)."""
        cos, sin = self.cos[positions].unsqueeze(1), self.sin[positions].unsqueeze(1)
        low, high = x.float().chunk(2, dim=-1)
        return (x.float() * cos + torch.cat((-high, low), dim=-1) * sin).to(x.dtype)


def attend_rows(
    query: Tensor, *, layer: int, slots: Tensor, positions: Tensor, context: int, kv_cache: KVCache
) -> Tensor:
    """One row of each of several sequences, query [num_rows, num_heads, head_dim]; shapes depend on `context` alone."""
    keys, values = kv_cache.read(layer, slots=slots, context=context)
    seen = torch.arange(context, device=query.device) <= positions.unsqueeze(1)
    attended = functional.scaled_dot_product_attention(
        query.unsqueeze(2), keys, values, attn_mask=seen[:, None, None, :], enable_gqa=True
    )
    return attended.squeeze(2)


def attend_prompt(query: Tensor, *, layer: int, segment: Segment, rows: DeviceRows, kv_cache: KVCache) -> Tensor:
    """The rows of one sequence [num_rows, num_heads, head_dim], behind what the cache has of it."""
    slots = rows.slots[segment.start_row : segment.start_row + 1]
    keys, values = kv_cache.read(layer, slots=slots, context=segment.stop_position)
    mask = None
    if segment.start_position:
        shape = (segment.num_rows, segment.stop_position)
        mask = torch.ones(shape, dtype=torch.bool, device=query.device).tril(diagonal=segment.start_position)
    attended = functional.scaled_dot_product_attention(
        query.transpose(0, 1).unsqueeze(0), keys, values, attn_mask=mask, is_causal=mask is None, enable_gqa=True
    )
    return attended.squeeze(0).transpose(0, 1)
