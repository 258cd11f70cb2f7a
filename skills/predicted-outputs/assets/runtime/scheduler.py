"""Continuous batching whose decode steps verify guesses from clients' predictions (Leviathan et al. 2023)."""

from __future__ import annotations

from .batching import SequenceQueue
from .drafting import Drafter
from .interfaces import Sequence, Step
from .kv_cache import KVCache
from .parameters import Parameters
from .steps import make_step


class Scheduler(SequenceQueue):
    """See `interfaces.SchedulerLike`.

    Prompts go first and whole. Else a step holds one row of every running sequence, and behind it, where the client
    has predicted the output, rows of guesses: one forward for all sequences and all guesses. A guess is kept where the
    model's own greedy token is the same, so that predictions change the number of steps and never a token.
    """

    def __init__(self, kv_cache: KVCache, *, parameters: Parameters) -> None:
        super().__init__(kv_cache)
        self.max_prefill_tokens = parameters.max_prefill_tokens
        self.max_step_draft_tokens = parameters.max_step_draft_tokens
        self.min_draft_chance = parameters.min_draft_chance
        self.max_draft_tokens = parameters.max_draft_tokens
        if parameters.fixed_point_min_rows > 0:
            # a segment of so many rows is multiplied in fixed point, a decode row is not: their tokens may differ
            self.max_draft_tokens = min(self.max_draft_tokens, parameters.fixed_point_min_rows - 2)
        self.drafters: dict[Sequence, Drafter] = {}

    def add(self, sequence: Sequence) -> None:
        super().add(sequence)
        if sequence.prediction_token_ids and sequence.params.temperature == 0.0 and sequence.constraint is None:
            self.drafters[sequence] = Drafter(
                sequence.prediction_token_ids, prompt=sequence.prompt_token_ids, min_chance=self.min_draft_chance
            )

    def plan(self) -> Step | None:
        self.admit()
        if not self.running:
            return None
        prompts = self.prompts(self.max_prefill_tokens)
        if prompts:
            return make_step(prompts)
        return make_step([(sequence, 1) for sequence in self.running], drafts=self._drafts())

    def finish(self, sequence: Sequence) -> None:
        super().finish(sequence)
        drafter = self.drafters.pop(sequence, None)
        if drafter is not None:
            drafter.observe(sequence.output_token_ids)
            sequence.num_accepted_prediction_tokens = drafter.num_accepted

    def _drafts(self) -> dict[Sequence, list[int]]:
        """Guesses of the running sequences; what one leaves of the step's room is the others'."""
        drafts: dict[Sequence, list[int]] = {}
        room = self.max_step_draft_tokens
        drafting = [sequence for sequence in self.running if sequence in self.drafters]
        for number, sequence in enumerate(drafting):
            drafter = self.drafters[sequence]
            drafter.observe(sequence.output_token_ids)
            # the step's own token comes on top of the guesses: none is made beyond the last token
            num_left = sequence.params.max_tokens - len(sequence.output_token_ids) - 1
            share = room // (len(drafting) - number)
            drafts[sequence] = drafter.propose(min(self.max_draft_tokens, num_left, share))
            room -= len(drafts[sequence])
        return drafts
