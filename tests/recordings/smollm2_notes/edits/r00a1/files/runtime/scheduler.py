"""First come, first served, one sequence at a time."""

from __future__ import annotations

from collections import deque

from .interfaces import Sequence, Step
from .kv_cache import KVCache
from .parameters import Parameters
from .steps import make_step


class Scheduler:
    """See `interfaces.SchedulerLike`. A step never holds more than one sequence."""

    def __init__(self, kv_cache: KVCache, *, parameters: Parameters) -> None:
        self.kv_cache = kv_cache
        self.prefill_chunk_tokens = parameters.prefill_chunk_tokens
        self.waiting: deque[Sequence] = deque()
        self.running: Sequence | None = None

    @property
    def num_running(self) -> int:
        return 0 if self.running is None else 1

    @property
    def num_waiting(self) -> int:
        return len(self.waiting)

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def plan(self) -> Step | None:
        if self.running is None and self.waiting:
            self._admit()
        if self.running is None:
            return None
        num_rows = self.running.num_tokens - self.running.num_computed_tokens
        if self.prefill_chunk_tokens:
            num_rows = min(num_rows, self.prefill_chunk_tokens)
        return make_step([(self.running, num_rows)])

    def finish(self, sequence: Sequence) -> None:
        if sequence is self.running:
            self.running = None
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        if sequence.slot is not None:
            self.kv_cache.free(sequence.slot)
            sequence.slot = None

    def _admit(self) -> None:
        slot = self.kv_cache.allocate(self.waiting[0].max_num_tokens)
        if slot is not None:
            self.running = self.waiting.popleft()
            self.running.slot = slot
