"""What the batching schedulers share: the queue of sequences."""

from __future__ import annotations

from collections import deque

from .interfaces import Sequence
from .kv_cache import KVCache


class SequenceQueue:
    """Waiting and running sequences, in order of arrival; a sequence runs from the moment it holds a cache slot."""

    def __init__(self, kv_cache: KVCache) -> None:
        self.kv_cache = kv_cache
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    @property
    def num_running(self) -> int:
        return len(self.running)

    @property
    def num_waiting(self) -> int:
        return len(self.waiting)

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def admit(self) -> None:
        """Give slots to the first in line while there are any. Nobody overtakes: a long prompt is not starved."""
        while self.waiting:
            slot = self.kv_cache.allocate(self.waiting[0].max_num_tokens)
            if slot is None:
                return
            sequence = self.waiting.popleft()
            sequence.slot = slot
            self.running.append(sequence)

    def prompts(self, max_rows: int) -> list[tuple[Sequence, int]]:
        """Prompts that are not in the cache yet, whole, with their rows; at least the first, however long."""
        chosen: list[tuple[Sequence, int]] = []
        num_rows = 0
        for sequence in self.running:
            num_left = sequence.num_tokens - sequence.num_computed_tokens
            if num_left == 1:
                continue
            if chosen and num_rows + num_left > max_rows:
                break
            chosen.append((sequence, num_left))
            num_rows += num_left
        return chosen

    def finish(self, sequence: Sequence) -> None:
        """Forget a sequence, waiting or running, and free its slot. Unknown sequences are ignored."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        if sequence.slot is not None:
            self.kv_cache.free(sequence.slot)
            sequence.slot = None
