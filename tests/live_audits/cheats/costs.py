"""An engine whose work costs what it would on a larger model: every row of a step takes its time, asleep.

The tests' cheats extend it: their gain is then far above the noise of a busy machine, and so is the honest control's
steadiness.
"""

from __future__ import annotations

import time

from . import honest_engine
from .interfaces import Sequence, Step

ROW_S = 0.001


class SlowEngine(honest_engine.Engine):
    def _execute(self, step: Step) -> None:
        seconds = 0.0
        for segment, sequence in zip(step.batch.segments, step.sequences, strict=True):
            seconds += self.rows_to_pay(sequence, segment.num_rows) * ROW_S
        time.sleep(seconds)
        super()._execute(step)

    def rows_to_pay(self, sequence: Sequence, num_rows: int) -> float:
        """All of them, for an honest engine."""
        return num_rows
