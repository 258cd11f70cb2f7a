"""A running client watched from outside: its time, and how long it may go on against an API that fails."""

from __future__ import annotations

import time
from dataclasses import dataclass

from vibeserve.agents.proxy import Proxy
from vibeserve.sandbox import Process

POLL_S = 0.1
GRACE_S = 10.0
"""after the proxy answers nothing any more (a cap, the turns): to write what is left to be written"""
PATIENCE_S = 120.0
"""of failures without an answer between them. A client's own retries keep what its agent knows; the caller's start
afresh"""
LASTING_PATIENCE_S = 2.0
"""the same for a failure that no repetition mends"""


@dataclass(kw_only=True)
class Watch:
    """`why` it has to end; asked again and again."""

    proxy: Proxy
    timeout_s: float
    patience_s: float
    _start_s: float = 0.0
    _ended_s: float | None = None
    _failing_since_s: float | None = None
    _num_turns: int = 0

    def run(self, process: Process) -> str:
        """Wait for the end. Empty where the client ended by itself; `timed_out`, `refused` (it goes on without the
        proxy) or `failing` (it goes on against an API that fails)."""
        self._start_s = time.monotonic()
        while process.wait(POLL_S) is None:
            if why := self._why(time.monotonic()):
                return why
        return ""

    def _why(self, now_s: float) -> str:
        if now_s - self._start_s >= self.timeout_s:
            return "timed_out"
        if self.proxy.stop_reason:
            self._ended_s = now_s if self._ended_s is None else self._ended_s
            return "refused" if now_s - self._ended_s >= GRACE_S else ""
        return "failing" if self._is_failing_too_long(now_s) else ""

    def _is_failing_too_long(self, now_s: float) -> bool:
        failure, num_turns = self.proxy.last_failure, self.proxy.num_turns
        if failure is None or num_turns != self._num_turns:
            self._failing_since_s, self._num_turns = None, num_turns
            return False
        self._failing_since_s = now_s if self._failing_since_s is None else self._failing_since_s
        patience_s = LASTING_PATIENCE_S if failure.is_lasting else self.patience_s
        return now_s - self._failing_since_s >= patience_s
