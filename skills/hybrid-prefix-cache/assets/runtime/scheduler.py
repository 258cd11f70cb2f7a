"""Continuous batching over shared prefixes: a sequence goes on where a snapshot is, and leaves snapshots where prompts
part."""

from __future__ import annotations

from collections import deque

from .batching import SequenceQueue
from .interfaces import Sequence, Step
from .kv_cache import KVCache
from .parameters import Parameters
from .prefix_pool import num_equal
from .steps import make_step

NUM_RECENT = 64
"""prompts that are remembered by their ids: what they computed may be gone, but two that began alike show a prefix"""


class Scheduler(SequenceQueue):
    """See `interfaces.SchedulerLike`.

    Which part of a prompt others will share is not said by anyone. Two prompts say it together: where they part, the
    second one to be computed leaves a snapshot, the first one if both are known in time. Besides, every
    `snapshot_tokens` tokens of a prompt there is one, so that the second one starts no further back than that.
    """

    def __init__(self, kv_cache: KVCache, *, parameters: Parameters) -> None:
        super().__init__(kv_cache)
        self.cache = kv_cache
        self.max_prefill_tokens = parameters.max_prefill_tokens
        self.snapshot_tokens = parameters.snapshot_tokens
        self.min_shared_tokens = parameters.min_shared_tokens
        self.recent: deque[list[int]] = deque(maxlen=NUM_RECENT)

    def add(self, sequence: Sequence) -> None:
        super().add(sequence)
        for other in self.running:
            place = self._parting(sequence, other)
            if place and other.slot is not None and not self._is_near(place, self.cache.marks(other.slot)):
                self.cache.mark(other.slot, place)

    def admit(self) -> None:
        """Give slots to the first in line. Nobody overtakes; one whose prefix is being computed waits for it."""
        while self.waiting and self.cache.has_free_slot:
            sequence = self.waiting[0]
            if self._is_worth_waiting(sequence):
                return
            slot = self.cache.resume(sequence.prompt_token_ids, max_num_tokens=sequence.max_num_tokens)
            if slot is None:
                return
            self.waiting.popleft()
            sequence.slot = slot
            sequence.num_computed_tokens = self.cache.num_seen(slot)
            self.running.append(sequence)
            self._mark(sequence, slot)

    def plan(self) -> Step | None:
        self.admit()
        if not self.running:
            return None
        return make_step(self.prompts(self.max_prefill_tokens) or [(sequence, 1) for sequence in self.running])

    def prompts(self, max_rows: int) -> list[tuple[Sequence, int]]:
        """Pieces of prompts, up to `max_rows` rows; none goes beyond a place of which a snapshot is wanted."""
        chosen: list[tuple[Sequence, int]] = []
        for sequence in self.running:
            num_rows = sequence.num_tokens - sequence.num_computed_tokens
            if num_rows == 1 or sequence.slot is None:
                continue
            marks = self.cache.marks(sequence.slot)
            if marks:
                num_rows = min(num_rows, marks[0] - sequence.num_computed_tokens)
            chosen.append((sequence, min(num_rows, max_rows)))
            max_rows -= chosen[-1][1]
            if max_rows == 0:
                break
        return chosen

    def _mark(self, sequence: Sequence, slot: int) -> None:
        """Ask for the snapshots that this prompt should leave."""
        start, num_prompt = sequence.num_computed_tokens, sequence.num_prompt_tokens
        places = set(range(start - start % self.snapshot_tokens, num_prompt, self.snapshot_tokens))
        places |= {self._parting(sequence, other) for other in self.waiting}
        places.add(self.cache.pool.match(sequence.prompt_token_ids).num_known)
        places |= {num_equal(sequence.prompt_token_ids, other) for other in self.recent}
        self.recent.append(sequence.prompt_token_ids)
        taken = [start]
        for place in sorted(places):
            if start < place < num_prompt and not self._is_near(place, taken):
                self.cache.mark(slot, place)
                taken.append(place)

    def _is_near(self, place: int, others: list[int]) -> bool:
        """Whether one of `others` is so little in front that the rest is computed sooner than it is kept: prompts also
        agree in some tokens by chance."""
        return any(other <= place < other + self.min_shared_tokens for other in others)

    def _is_worth_waiting(self, sequence: Sequence) -> bool:
        """Whether a running prompt will leave a snapshot that saves this one more than `min_shared_tokens`."""
        best = 0
        for other in self.running:
            if other.slot is None:
                continue
            marks = [place for place in self.cache.marks(other.slot) if place > other.num_computed_tokens]
            if marks:
                shared = self._num_shared(sequence, other)
                best = max([best, *(place for place in marks if place <= min(shared, sequence.num_prompt_tokens - 1))])
        if best < self.min_shared_tokens:
            return False
        return best - self.cache.pool.match(sequence.prompt_token_ids).num_tokens >= self.min_shared_tokens

    def _num_shared(self, one: Sequence, other: Sequence) -> int:
        return num_equal(one.prompt_token_ids, other.prompt_token_ids)

    def _parting(self, one: Sequence, other: Sequence) -> int:
        """Where two prompts part; 0 where that is too soon, or one is the beginning of the other."""
        place = self._num_shared(one, other)
        is_end = place in (one.num_prompt_tokens, other.num_prompt_tokens)
        return 0 if is_end or place < self.min_shared_tokens else place
