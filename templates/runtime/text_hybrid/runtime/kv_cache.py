"""Static cache of a hybrid model: one slot for each sequence that may run."""

from __future__ import annotations

import torch

from . import placement
from .hybrid import HybridConfig
from .interfaces import Batch
from .parameters import Parameters


class KVCache:
    """`keys` and `values` by attention layer, f32 [num_slots, num_kv_heads, max_context_tokens, head_dim] (keys are
    rotated where the model has positions); `states` and `windows` by linear layer: see `hybrid.HybridCacheLike`."""

    def __init__(self, config: HybridConfig, *, parameters: Parameters) -> None:
        self.num_slots = parameters.max_num_seqs
        self.max_context_tokens = parameters.max_context_tokens
        shape = (self.num_slots, config.num_kv_heads, self.max_context_tokens, config.head_dim)
        self.keys = {layer: placement.empty(shape, dtype=torch.float32) for layer in config.attention_layers}
        self.values = {layer: placement.empty(shape, dtype=torch.float32) for layer in config.attention_layers}
        heads = (config.linear_num_value_heads, config.linear_key_head_dim, config.linear_value_head_dim)
        window = (config.conv_kernel - 1, config.conv_dim)
        self.states = {layer: torch.zeros(self.num_slots, *heads) for layer in config.linear_layers}
        self.windows = {layer: torch.zeros(self.num_slots, *window) for layer in config.linear_layers}
        self._num_seen = [0] * self.num_slots
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

    def begin(self, batch: Batch) -> None:
        """See `hybrid.HybridCacheLike`."""
        for segment in batch.segments:
            if segment.start_position == 0:
                self._reset(segment.slot)
            seen = self._num_seen[segment.slot]
            if seen != segment.start_position:
                where = f"slot {segment.slot} has seen {seen} tokens"
                raise ValueError(f"{where}; it cannot go on at {segment.start_position}")

    def end(self, batch: Batch) -> None:
        """See `hybrid.HybridCacheLike`."""
        for segment in batch.segments:
            self._num_seen[segment.slot] = segment.stop_position

    def _reset(self, slot: int) -> None:
        self._num_seen[slot] = 0
        for tensors in (self.states, self.windows):
            for tensor in tensors.values():
                tensor[slot].zero_()
