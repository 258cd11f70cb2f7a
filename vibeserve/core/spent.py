"""Where a run's time went: seconds by activity. What measuring and judging cost is part of the result."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

MEASURING = ("windows",)
"""activities in which a contender served a load that was timed"""
JUDGING = ("scan", "build", "start", "probe", "rescore", "own_tests", "audits", "reference")
"""activities of the gates"""


@dataclass(kw_only=True)
class Spent:
    """A stopwatch with one hand a thread: while an inner activity runs, the outer one stands still. Threads add up."""

    monotonic: Callable[[], float] = time.monotonic
    seconds: dict[str, float] = field(default_factory=dict)
    _hand: threading.local = field(default_factory=threading.local, repr=False)
    _adding: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @contextmanager
    def on(self, activity: str) -> Iterator[None]:
        """The time of this block is `activity`'s."""
        running = self._book()
        running.append(activity)
        try:
            yield
        finally:
            self._book()
            running.pop()

    def take(self) -> dict[str, float]:
        """What was spent since the last call, rounded to milliseconds."""
        self._book()
        with self._adding:
            taken = {name: round(value, 3) for name, value in self.seconds.items()}
            self.seconds.clear()
        return taken

    def _book(self) -> list[str]:
        """What this thread is at, the innermost last."""
        now_s = self.monotonic()
        running: list[str] = self._hand.__dict__.setdefault("running", [])
        if running:
            with self._adding:
                self.seconds[running[-1]] = self.seconds.get(running[-1], 0.0) + now_s - self._hand.since_s
        self._hand.since_s = now_s
        return running


def added(parts: list[dict[str, float]]) -> dict[str, float]:
    """The sum over several, by activity."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: round(sum(part.get(name, 0.0) for part in parts), 3) for name in names}


def shares(spent: dict[str, float], *, wall_s: float) -> dict[str, float]:
    """`measuring_share` and `judging_share` of the wall time; empty without any wall time."""
    if wall_s <= 0:
        return {}
    measuring = sum(spent.get(name, 0.0) for name in MEASURING)
    judging = sum(spent.get(name, 0.0) for name in JUDGING)
    return {"measuring_share": round(measuring / wall_s, 4), "judging_share": round(judging / wall_s, 4)}
