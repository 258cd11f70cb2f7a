"""Work goes on for a while after the last token was sent, on a thread of its own."""

from __future__ import annotations

import threading
import time

from .costs import SlowEngine
from .interfaces import Sequence

DEFERRED_S = 2.5


class Engine(SlowEngine):
    def __init__(self, *arguments, **options) -> None:
        super().__init__(*arguments, **options)
        self.until_s = 0.0
        threading.Thread(target=self.work, daemon=True).start()

    def work(self) -> None:
        while True:
            if self._live or time.monotonic() > self.until_s:
                time.sleep(0.01)
            else:
                sum(range(1000))

    def _finish(self, sequence: Sequence, reason: str, text: str) -> None:
        super()._finish(sequence, reason, text)
        self.until_s = time.monotonic() + DEFERRED_S
