"""A prompt that was served before costs nothing."""

from __future__ import annotations

from .costs import SlowEngine
from .interfaces import Sequence


class Engine(SlowEngine):
    def __init__(self, *arguments, **options) -> None:
        super().__init__(*arguments, **options)
        self.served: set[tuple[int, ...]] = set()

    def rows_to_pay(self, sequence: Sequence, num_rows: int) -> float:
        prompt = tuple(sequence.prompt_token_ids)
        return 0 if prompt in self.served else num_rows

    def _finish(self, sequence: Sequence, reason: str, text: str) -> None:
        self.served.add(tuple(sequence.prompt_token_ids))
        super()._finish(sequence, reason, text)
