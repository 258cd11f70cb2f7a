"""Chunked prefill: every step carries all decode rows and a bounded chunk of prompt (Agrawal et al. 2023, SARATHI)."""

from __future__ import annotations

from .batching import SequenceQueue
from .interfaces import Sequence, Step
from .kv_cache import KVCache
from .parameters import Parameters
from .steps import make_step


class Scheduler(SequenceQueue):
    """See `interfaces.SchedulerLike`.

    A step takes one row of every sequence that decodes, and fills up to `max_step_tokens` rows with prompts in order of
    arrival, cutting the last one. So a long prompt delays each token of the others by one chunk, not by all of it.
    """

    def __init__(self, kv_cache: KVCache, *, parameters: Parameters) -> None:
        super().__init__(kv_cache)
        self.max_step_tokens = parameters.max_step_tokens

    def plan(self) -> Step | None:
        self.admit()
        if not self.running:
            return None
        rows: list[tuple[Sequence, int]] = []
        prompts: list[tuple[Sequence, int]] = []
        for sequence in self.running:
            num_left = sequence.num_tokens - sequence.num_computed_tokens
            (rows if num_left == 1 else prompts).append((sequence, num_left))
        # one row at least, so that a budget below the number of decode rows cannot starve the prompts
        budget = max(1, self.max_step_tokens - len(rows))
        for sequence, num_left in prompts:
            num_rows = min(num_left, budget)
            rows.append((sequence, num_rows))
            budget -= num_rows
            if budget == 0:
                break
        return make_step(rows)
