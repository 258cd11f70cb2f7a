"""The recording that has waited longest, alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .interfaces import Waiting
from .parameters import Parameters


class Scheduler:
    """See `interfaces.SchedulerLike`."""

    def __init__(self, *, parameters: Parameters) -> None:
        self.parameters = parameters

    def choose(self, waiting: Sequence[Waiting], /) -> list[Any]:
        return [min(waiting, key=lambda each: each.waiting_since_s)]
