"""What the batching schedulers share: the queue of sequences and the flattening of a step."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Items

import torch

from .interfaces import Batch, Segment, Sequence, Step
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

    def finish(self, sequence: Sequence) -> None:
        """Forget a sequence, waiting or running, and free its slot. Unknown sequences are ignored."""
        if sequence in self.running:
            self.running.remove(sequence)
        elif sequence in self.waiting:
            self.waiting.remove(sequence)
        if sequence.slot is not None:
            self.kv_cache.free(sequence.slot)
            sequence.slot = None


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
