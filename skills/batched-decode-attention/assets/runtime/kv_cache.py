"""Static bf16 KV cache in the layout of weight panels (`native/attention.h`)."""

from __future__ import annotations

import torch

from . import placement
from .interfaces import ModelConfig
from .parameters import Parameters

PANEL_COLUMNS = 32


class KVCache:
    """bf16 `keys` [layer, slot, kv head, position / 32, head_dim, 32] and `values` with the last dimensions
    [.., head_dim / 32, position, 32].

    The 32 columns of a line are interleaved by halves. A slot's pages are not touched before they are used.
    """

    def __init__(self, config: ModelConfig, *, parameters: Parameters) -> None:
        self.num_slots = parameters.max_num_seqs
        self.max_context_tokens = parameters.max_context_tokens
        self.capacity = round_up(self.max_context_tokens)
        heads = (config.num_layers, self.num_slots, config.num_kv_heads)
        key_shape = (*heads, self.capacity // PANEL_COLUMNS, config.head_dim, PANEL_COLUMNS)
        value_shape = (*heads, round_up(config.head_dim) // PANEL_COLUMNS, self.capacity, PANEL_COLUMNS)
        self.keys = placement.empty(key_shape, dtype=torch.bfloat16)
        self.values = placement.empty(value_shape, dtype=torch.bfloat16)
        self._free = list(reversed(range(self.num_slots)))

    @property
    def usage(self) -> float:
        return 1.0 - len(self._free) / self.num_slots

    def allocate(self, num_tokens: int) -> int | None:
        """See `interfaces.KVCacheLike`. Raises ValueError for more tokens than a slot holds."""
        if num_tokens > self.max_context_tokens:
            raise ValueError(f"{num_tokens} tokens do not fit a slot of {self.max_context_tokens}")
        return self._free.pop() if self._free else None

    def free(self, slot: int) -> None:
        if slot in self._free:
            raise ValueError(f"slot {slot} is already free")
        self._free.append(slot)


def round_up(size: int) -> int:
    """To whole panels."""
    return -(-size // PANEL_COLUMNS) * PANEL_COLUMNS
