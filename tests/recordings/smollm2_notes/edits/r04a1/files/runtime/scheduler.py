"""Continuous batching: a step holds one row of each decoding sequence and a bounded number of prompt rows."""

from __future__ import annotations

from collections import deque

from .interfaces import Sequence, Step
from .kv_cache import KVCache
from .parameters import Parameters
from .steps import make_step

CUT_POSITIONS = 32
"""prompts are cut at multiples of this"""


class Scheduler:
    """See `interfaces.SchedulerLike`. First come, first served; nobody overtakes the first in line.

    Decode rows never wait for prompts, and prompts take at most `prefill_chunk_tokens` rows of a step, so that tokens
    flow evenly while others arrive (Agrawal et al. 2023, SARATHI).
    """

    def __init__(self, kv_cache: KVCache, *, parameters: Parameters) -> None:
        self.kv_cache = kv_cache
        self.max_prompt_rows = parameters.prefill_chunk_tokens or parameters.max_context_tokens
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
        rows: list[tuple[Sequence, int]] = []
        prompts: list[tuple[Sequence, int]] = []
        budget = self.max_prompt_rows
        for sequence in self.running:
            missing = sequence.num_tokens - sequence.num_computed_tokens
            if sequence.output_token_ids:
                rows.append((sequence, missing))
            elif budget:
                prompts.append((sequence, cut(sequence, min(missing, budget))))
                budget = max(0, budget - prompts[-1][1])
        rows += prompts
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


def cut(sequence: Sequence, num_rows: int) -> int:
    """At most some `num_rows` next rows of a prompt.

    The cut lies at a multiple of `CUT_POSITIONS` where that leaves any, and never leaves or takes a single row: single
    rows are multiplied in another way (`native/llama.cpp`), and what a prompt says may not depend on the load.
    """
    start, missing = sequence.num_computed_tokens, sequence.num_tokens - sequence.num_computed_tokens
    if num_rows == missing:
        return missing
    stop = max((start + num_rows) // CUT_POSITIONS * CUT_POSITIONS, start + min(missing, CUT_POSITIONS))
    return missing if sequence.num_tokens - stop == 1 else stop - start
