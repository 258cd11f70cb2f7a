"""Continuous batching: sequences join and leave between steps (Yu et al. 2022, Orca); prompts first and whole."""

from __future__ import annotations

from .batching import SequenceQueue
from .interfaces import Step
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
        return make_step(self.prompts(self.max_prefill_tokens) or [(sequence, 1) for sequence in self.running])
