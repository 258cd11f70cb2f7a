"""KV cache in pages of 16 tokens on the device (Kwon et al. 2023): a sequence holds as many as its own length needs."""

from __future__ import annotations

import torch
from torch import Tensor

from .device import compute_device
from .interfaces import ModelConfig
from .parameters import Parameters

PAGE_TOKENS = 16


class KVCache:
    """Per layer `keys` and `values`, bf16 [num_pages, num_kv_heads, PAGE_TOKENS, head_dim]; keys are rotated.

    A slot is a line of the page table. Page 0 is the padding slot's, and stands wherever a line holds no page yet:
    what it holds is masked. Raises ValueError where one sequence of `max_context_tokens` would not fit.
    """

    def __init__(self, config: ModelConfig, *, parameters: Parameters) -> None:
        device = compute_device(parameters)
        self.num_slots, self.num_pages = parameters.max_num_seqs, parameters.num_kv_pages
        self.max_context_tokens = parameters.max_context_tokens
        longest = num_pages_of(self.max_context_tokens)
        if longest > self.num_pages - 1:
            takes = f"a context of {self.max_context_tokens} tokens takes {longest + 1}"
            raise ValueError(f"num_kv_pages is {self.num_pages}; {takes}")
        shape = (self.num_pages, config.num_kv_heads, PAGE_TOKENS, config.head_dim)
        options = {"dtype": torch.bfloat16, "device": device}
        self.keys = [torch.zeros(shape, **options) for _ in range(config.num_layers)]
        self.values = [torch.zeros(shape, **options) for _ in range(config.num_layers)]
        self.table = torch.zeros((self.num_slots + 1, longest), dtype=torch.int64, device=device)
        self._free_slots = list(reversed(range(self.num_slots)))
        self._free_pages = list(reversed(range(1, self.num_pages)))
        self._pages_of: dict[int, list[int]] = {}

    @property
    def padding_slot(self) -> int:
        return self.num_slots

    @property
    def usage(self) -> float:
        """Of pages or of slots, whichever runs out first."""
        pages, slots = len(self._free_pages) / (self.num_pages - 1), len(self._free_slots) / self.num_slots
        return 1.0 - min(pages, slots)

    def allocate(self, num_tokens: int) -> int | None:
        """See `interfaces.KVCacheLike`. Raises ValueError for more tokens than a slot holds."""
        wanted = num_pages_of(num_tokens)
        if num_tokens > self.max_context_tokens:
            raise ValueError(f"{num_tokens} tokens do not fit a slot of {self.max_context_tokens}")
        if not self._free_slots or wanted > len(self._free_pages):
            return None
        slot = self._free_slots.pop()
        pages = [self._free_pages.pop() for _ in range(wanted)]
        self._pages_of[slot] = pages
        self.table[slot].zero_()
        self.table[slot, :wanted] = torch.tensor(pages, dtype=torch.int64).to(self.table.device)
        return slot

    def free(self, slot: int) -> None:
        if slot not in self._pages_of:
            raise ValueError(f"slot {slot} is already free")
        self._free_pages += self._pages_of.pop(slot)
        self._free_slots.append(slot)

    def write(self, layer: int, key: Tensor, value: Tensor, *, slots: Tensor, positions: Tensor) -> None:
        """Keys and values [num_rows, num_kv_heads, head_dim] of rows at their slots and positions."""
        pages, offsets = self.table[slots, positions // PAGE_TOKENS], positions % PAGE_TOKENS
        self.keys[layer][pages, :, offsets] = key
        self.values[layer][pages, :, offsets] = value

    def read(self, layer: int, *, slots: Tensor, context: int) -> tuple[Tensor, Tensor]:
        """Keys and values [num_slots, num_kv_heads, context, head_dim] of the first `context` positions."""
        pages = self.table[slots, : num_pages_of(context)]
        return self._gathered(self.keys[layer], pages, context), self._gathered(self.values[layer], pages, context)

    def _gathered(self, kept: Tensor, pages: Tensor, context: int) -> Tensor:
        # [slots, pages, heads, tokens of a page, head_dim] -> the pages of a head one after the other
        gathered = kept[pages].transpose(1, 2)
        return gathered.reshape(len(pages), kept.shape[1], -1, kept.shape[3])[:, :, :context]


def num_pages_of(num_tokens: int) -> int:
    return -(-num_tokens // PAGE_TOKENS)
