"""When open-loop requests are due."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

from vibeserve.contract import Request
from vibeserve.errors import ContractError

MAX_AT_ONCE = 1000
"""requests in a row with one arrival time: an endless stream that stands still would open connections without end"""


def poisson_arrivals(rate_per_s: float, *, seed: int) -> Iterator[float]:
    """Endless arrival times of a Poisson process, in seconds of active time after the session's start.

    The same seed gives the same times on every machine (`random.Random` is specified to).
    """
    if not rate_per_s > 0:
        raise ValueError(f"rate_per_s must be above 0, not {rate_per_s}")
    draw = random.Random(seed)
    due_s = 0.0
    while True:
        due_s += draw.expovariate(rate_per_s)
        yield due_s


class Replay:
    """The requests' own arrivals, `speed` times as fast."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._last_s = 0.0
        self._num_at_once = 0

    def due_s(self, request: Request) -> float:
        """Seconds of active time after the session's start. ContractError for an arrival that cannot be kept."""
        arrival_s = request.arrival_s
        if not (math.isfinite(arrival_s) and arrival_s >= self._last_s):
            text = f"requests(): {request.request_id} has arrival_s {arrival_s:g} after {self._last_s:g}"
            raise ContractError(text, problems=["a load with trace_speed needs arrivals that ascend from 0"])
        self._num_at_once = self._num_at_once + 1 if arrival_s == self._last_s else 1
        if self._num_at_once > MAX_AT_ONCE:
            raise ContractError(f"requests(): more than {MAX_AT_ONCE} requests in a row have arrival_s {arrival_s:g}")
        self._last_s = arrival_s
        return arrival_s / self._speed
