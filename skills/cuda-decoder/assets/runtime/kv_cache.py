"""KV cache on the device: one slot of `max_context_tokens` for each sequence that may run, and one for padding."""

from __future__ import annotations

import torch
from torch import Tensor

from .device import compute_device
from .interfaces import ModelConfig
from .parameters import Parameters


class KVCache:
    """Per layer `keys` and `values`, bf16 [num_slots + 1, num_kv_heads, max_context_tokens, head_dim]; keys are
    rotated. What the last slot holds is never read by a sequence."""

    def __init__(self, config: ModelConfig, *, parameters: Parameters) -> None:
        self.num_slots = parameters.max_num_seqs
        self.max_context_tokens = parameters.max_context_tokens
        shape = (self.num_slots + 1, config.num_kv_heads, self.max_context_tokens, config.head_dim)
        options = {"dtype": torch.bfloat16, "device": compute_device(parameters)}
        # zeros: what is masked in attention is multiplied by zero, and must be a number
        self.keys = [torch.zeros(shape, **options) for _ in range(config.num_layers)]
        self.values = [torch.zeros(shape, **options) for _ in range(config.num_layers)]
        self._free = list(reversed(range(self.num_slots)))

    @property
    def padding_slot(self) -> int:
        return self.num_slots

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

    def write(self, layer: int, key: Tensor, value: Tensor, *, slots: Tensor, positions: Tensor) -> None:
        """Keys and values [num_rows, num_kv_heads, head_dim] of rows at their slots and positions."""
        self.keys[layer][slots, :, positions] = key
        self.values[layer][slots, :, positions] = value

    def read(self, layer: int, *, slots: Tensor, context: int) -> tuple[Tensor, Tensor]:
        """Keys and values [num_slots, num_kv_heads, context, head_dim] of the first `context` positions."""
        return self.keys[layer][slots, :, :context], self.values[layer][slots, :, :context]
