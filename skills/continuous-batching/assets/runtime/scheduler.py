"""Continuous batching: sequences join and leave between steps (Yu et al. 2022, Orca); prompts first and whole."""

from __future__ import annotations

from .batching import SequenceQueue
from .interfaces import Sequence, Step
from .kv_cache import KVCache
from .parameters import Parameters
from .steps import make_step


class Scheduler(SequenceQueue):
    """See `interfaces.SchedulerLike`.

    A step holds either whole prompts that have just been admitted, up to `max_prefill_tokens` rows of them, or one row
    of every running sequence. Prompts go first: a slot that waits for its prompt earns nothing, and every later decode
    step reads the weights for one sequence more.
    """

    def __init__(self, kv_cache: KVCache, *, parameters: Parameters) -> None:
        super().__init__(kv_cache)
        self.max_prefill_tokens = parameters.max_prefill_tokens

    def plan(self) -> Step | None:
        self.admit()
        if not self.running:
            return None
        return make_step(self._prompts() or [(sequence, 1) for sequence in self.running])

    def _prompts(self) -> list[tuple[Sequence, int]]:
        """Prompts that are not in the cache yet; at least the first, however long."""
        chosen: list[tuple[Sequence, int]] = []
        num_rows = 0
        for sequence in self.running:
            num_left = sequence.num_tokens - sequence.num_computed_tokens
            if num_left == 1:
                continue
            if chosen and num_rows + num_left > self.max_prefill_tokens:
                break
            chosen.append((sequence, num_left))
            num_rows += num_left
        return chosen
