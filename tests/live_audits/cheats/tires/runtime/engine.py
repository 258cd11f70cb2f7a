"""Slower with every request, and larger."""

from __future__ import annotations

from .costs import SlowEngine
from .interfaces import Sequence

SLOWER = 1.03
LEAK_BYTES = 4 << 20


class Engine(SlowEngine):
    def __init__(self, *arguments, **options) -> None:
        super().__init__(*arguments, **options)
        self.factor = 1.0
        self.leaked: list[bytes] = []

    def rows_to_pay(self, sequence: Sequence, num_rows: int) -> float:
        return self.factor * num_rows

    def _finish(self, sequence: Sequence, reason: str, text: str) -> None:
        super()._finish(sequence, reason, text)
        self.factor *= SLOWER
        self.leaked.append(b"x" * LEAK_BYTES)
