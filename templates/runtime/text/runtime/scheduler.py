"""First come, first served, one sequence at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Items

import torch

from .interfaces import Batch, Segment, Sequence, Step
from .kv_cache import KVCache
from .parameters import Parameters


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


def make_step(rows: Items[tuple[Sequence, int]]) -> Step:
    """Flatten (sequence, number of its next rows) into a step; every sequence holds a slot."""
    token_ids: list[int] = []
    positions: list[int] = []
    segments: list[Segment] = []
    logits_rows: list[int] = []
    sampled: list[Sequence] = []
    for sequence, num_rows in rows:
        assert sequence.slot is not None
        start = sequence.num_computed_tokens
        segments.append(
            Segment(slot=sequence.slot, start_row=len(token_ids), num_rows=num_rows, start_position=start)
        )
        token_ids.extend(sequence.tokens_from(start, num_rows))
        positions.extend(range(start, start + num_rows))
        if start + num_rows == sequence.num_tokens:
            logits_rows.append(len(token_ids) - 1)
            sampled.append(sequence)
    batch = Batch(
        token_ids=torch.tensor(token_ids, dtype=torch.int64),
        positions=torch.tensor(positions, dtype=torch.int64),
        segments=tuple(segments),
        logits_rows=tuple(logits_rows),
    )
    return Step(batch=batch, sequences=tuple(sequence for sequence, _ in rows), sampled=tuple(sampled))
