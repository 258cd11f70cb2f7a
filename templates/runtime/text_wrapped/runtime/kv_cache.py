"""One cache of transformers per running sequence: keys and values, recurrent states, whatever the model keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .interfaces import ModelConfig
from .parameters import Parameters


@dataclass(kw_only=True, slots=True)
class Slot:
    """What the model keeps of one sequence."""

    cache: Any = None
    """the architecture's own cache; None before its first token"""
    num_tokens: int = 0
    """tokens that it has seen. Recurrent states cannot be taken back, so they go on from here or start anew"""


class KVCache:
    """See `interfaces.KVCacheLike`. A cache grows with its sequence; nothing is reserved."""

    def __init__(self, config: ModelConfig, *, parameters: Parameters) -> None:
        self.num_slots = parameters.max_num_seqs
        self.max_context_tokens = parameters.max_context_tokens
        self.slots = [Slot() for _ in range(self.num_slots)]
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
        self.slots[slot] = Slot()
        self._free.append(slot)

    def at(self, slot: int, *, start_position: int) -> Slot:
        """The slot as it is before the token at `start_position`; a sequence's first token finds an empty one.

        Raises ValueError where the slot has seen another number of tokens.
        """
        if start_position == 0:
            self.slots[slot] = Slot()
        found = self.slots[slot]
        if found.num_tokens != start_position:
            raise ValueError(f"slot {slot} has seen {found.num_tokens} tokens; it cannot go on at {start_position}")
        return found
