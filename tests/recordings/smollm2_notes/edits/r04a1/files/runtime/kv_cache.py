"""Static KV cache: one slot of `max_context_tokens` for each sequence that may run."""

from __future__ import annotations

import torch

from . import placement
from .interfaces import ModelConfig
from .parameters import Parameters

KEY_POSITIONS = 16
"""positions of a panel of keys, as in `native/attention.h`"""


class KVCache:
    """Per layer f16 keys `[num_slots, num_kv_heads, positions / 16, head_dim, 16]`, rotated, and values
    `[num_slots, num_kv_heads, positions, head_dim]`. Only `native/attention.h` reads and writes them."""

    def __init__(self, config: ModelConfig, *, parameters: Parameters) -> None:
        self.num_slots = parameters.max_num_seqs
        self.max_context_tokens = parameters.max_context_tokens
        num_panels = -(-self.max_context_tokens // KEY_POSITIONS)
        self.num_positions = num_panels * KEY_POSITIONS
        slots = (self.num_slots, config.num_kv_heads)
        keys = (*slots, num_panels, config.head_dim, KEY_POSITIONS)
        values = (*slots, self.num_positions, config.head_dim)
        self.keys = [placement.empty(keys, dtype=torch.float16) for _ in range(config.num_layers)]
        self.values = [placement.empty(values, dtype=torch.float16) for _ in range(config.num_layers)]
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
