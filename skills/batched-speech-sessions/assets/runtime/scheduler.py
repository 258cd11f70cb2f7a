"""All recordings that wait, together: one step reads the weights once for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .interfaces import Waiting
from .parameters import Parameters


class Scheduler:
    """See `interfaces.SchedulerLike`. Nobody waits for others to come: a step takes who is there, the longest first."""

    def __init__(self, *, parameters: Parameters) -> None:
        self._max_batch = parameters.max_batch_sessions

    def choose(self, waiting: Sequence[Waiting], /) -> list[Any]:
        return sorted(waiting, key=lambda each: each.waiting_since_s)[: self._max_batch]
