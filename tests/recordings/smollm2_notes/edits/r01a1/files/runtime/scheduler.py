"""Continuous batching: sequences join and leave between steps, so that one read of the weights serves all of them."""

from __future__ import annotations

from collections import deque

from .interfaces import Sequence, Step
from .kv_cache import KVCache
from .parameters import Parameters
from .steps import make_step

MAX_PREFILL_ROWS = 512
"""most prompt rows per step: bounds how long the running sequences stall while several prompts arrive together"""


class Scheduler:
    """See `interfaces.SchedulerLike`. First come, first served; nobody overtakes the first in line.

    Prompts go before decode rows, because a slot without its prompt earns nothing.
    """

    def __init__(self, kv_cache: KVCache, *, parameters: Parameters) -> None:
        self.kv_cache = kv_cache
        self.prefill_chunk_tokens = parameters.prefill_chunk_tokens
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        """in order of arrival"""

    @property
    def num_running(self) -> int:
        return len(self.running)

    @property
    def num_waiting(self) -> int:
        return len(self.waiting)

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def plan(self) -> Step | None:
        self._admit()
        rows = self._prompt_rows() or [(sequence, 1) for sequence in self.running]
        return make_step(rows) if rows else None

    def finish(self, sequence: Sequence) -> None:
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        if sequence.slot is not None:
            self.kv_cache.free(sequence.slot)
            sequence.slot = None

    def _admit(self) -> None:
        while self.waiting:
            slot = self.kv_cache.allocate(self.waiting[0].max_num_tokens)
            if slot is None:
                return
            sequence = self.waiting.popleft()
            sequence.slot = slot
            self.running.append(sequence)

    def _prompt_rows(self) -> list[tuple[Sequence, int]]:
        """Prompts that are not in the cache yet, at least one and otherwise within the budget.

        A decoding sequence misses exactly one row, its newest token; a prompt's last single row counts as one, too.
        """
        rows: list[tuple[Sequence, int]] = []
        budget = MAX_PREFILL_ROWS
        for sequence in self.running:
            missing = sequence.num_tokens - sequence.num_computed_tokens
            if missing == 1:
                continue
            num_rows = min(missing, self.prefill_chunk_tokens) if self.prefill_chunk_tokens else missing
            if rows and num_rows > budget:
                break
            rows.append((sequence, num_rows))
            budget -= num_rows
        return rows
