"""When open-loop requests are due."""

from __future__ import annotations

import random
from collections.abc import Iterator


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
