"""A prefix that an earlier prompt had is not computed again."""

from __future__ import annotations

from .costs import SlowEngine
from .interfaces import Sequence


class Engine(SlowEngine):
    def __init__(self, *arguments, **options) -> None:
        super().__init__(*arguments, **options)
        self.kept: list[list[int]] = []

    def rows_to_pay(self, sequence: Sequence, num_rows: int) -> float:
        if num_rows < 2:
            return num_rows
        shared = max((common(sequence.prompt_token_ids, prompt) for prompt in self.kept), default=0)
        self.kept.append(sequence.prompt_token_ids)
        return num_rows - min(shared, num_rows - 1)


def common(one: list[int], other: list[int]) -> int:
    pairs = zip(one, other, strict=False)
    return next((position for position, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
