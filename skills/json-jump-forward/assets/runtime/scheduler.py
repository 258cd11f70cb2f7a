"""Continuous batching whose decode steps verify what grammars make likely (speculation under a grammar)."""

from __future__ import annotations

from .batching import SequenceQueue
from .constraints import GrammarConstraint
from .interfaces import Sequence, Step
from .kv_cache import KVCache
from .parameters import Parameters
from .steps import make_step


class Scheduler(SequenceQueue):
    """See `interfaces.SchedulerLike`.

    Prompts go first and whole. Else a step holds one row of every running sequence, and behind it, where a grammar
    leaves little choice, rows of guesses. A guess is kept where the masked greedy token is the same, so that guesses
    change the number of steps and never a token.
    """

    def __init__(self, kv_cache: KVCache, *, parameters: Parameters) -> None:
        super().__init__(kv_cache)
        self.max_prefill_tokens = parameters.max_prefill_tokens
        self.max_jump_tokens = parameters.max_jump_tokens
        if parameters.fixed_point_min_rows > 0:
            # a segment of so many rows is multiplied in fixed point, a decode row is not: their tokens may differ
            self.max_jump_tokens = min(self.max_jump_tokens, parameters.fixed_point_min_rows - 2)

    def plan(self) -> Step | None:
        self.admit()
        if not self.running:
            return None
        prompts = self.prompts(self.max_prefill_tokens)
        if prompts:
            return make_step(prompts)
        drafts = {sequence: self._drafts(sequence) for sequence in self.running}
        return make_step([(sequence, 1) for sequence in self.running], drafts=drafts)

    def _drafts(self, sequence: Sequence) -> list[int]:
        constraint = sequence.constraint
        if sequence.params.temperature > 0.0 or not isinstance(constraint, GrammarConstraint):
            return []
        # the step's own token comes on top of the guesses: none is made beyond the last token
        num_left = sequence.params.max_tokens - len(sequence.output_token_ids) - 1
        return constraint.draft(min(self.max_jump_tokens, num_left))
