"""The clock of search decisions: measured time, or the fake that no test's outcome can depend on.

A window is measured either way; the fake then replaces every number that depends on speed by one computed from the
candidate's declared factor. Counts (failed, finished) stay as measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Protocol

from vibeserve.contract import Direction, Metric
from vibeserve.core.nouns import METRICS
from vibeserve.errors import SpecError
from vibeserve.spec import ClockKind

FAKE_BASE = 100.0
"""value of every throughput, and of every latency's inverse, at factor 1"""
FAKE_JITTER = 0.002
"""largest relative deviation; a hundred times finer than any declared factor is from 1"""
_UNTIMED = ("peak_memory",)


class Clock(Protocol):
    """What a decision reads the windows of a contender through."""

    def declare(self, name: str, *, factor: float) -> None:
        """Say before measuring how much faster than the scaffold contender `name` is expected to be."""

    def read(self, name: str, windows: Sequence[Mapping[str, float]], *, offset: int = 0) -> list[dict[str, float]]:
        """The windows of contender `name`, in measured order. `offset` is the number of windows read before these."""


class RealClock:
    """The measured numbers, untouched."""

    def declare(self, name: str, *, factor: float) -> None:
        del name, factor

    def read(self, name: str, windows: Sequence[Mapping[str, float]], *, offset: int = 0) -> list[dict[str, float]]:
        del name, offset
        return [dict(window) for window in windows]


class FakeClock:
    """Deterministic: throughput = 100 * factor, latency = 1 / throughput, with a tiny jitter by name and window.

    `metrics` is the workload's table: all of it but memory is replaced.
    """

    def __init__(self, metrics: Mapping[str, Metric] = METRICS) -> None:
        self._metrics = metrics
        self._factors: dict[str, float] = {}

    def declare(self, name: str, *, factor: float) -> None:
        if not factor > 0:
            raise SpecError(f"fake clock: the expected factor of '{name}' must be above 0, not {factor}")
        self._factors[name] = factor

    def read(self, name: str, windows: Sequence[Mapping[str, float]], *, offset: int = 0) -> list[dict[str, float]]:
        if name not in self._factors:
            known = ", ".join(sorted(self._factors)) or "none"
            raise SpecError(f"fake clock: no expected factor is declared for '{name}'", problems=[f"declared: {known}"])
        return [dict(window) | self._values(name, offset + position) for position, window in enumerate(windows)]

    def _values(self, name: str, position: int) -> dict[str, float]:
        values = {}
        for metric in self._metrics.values():
            if metric.name in _UNTIMED:
                continue
            speed = FAKE_BASE * self._factors[name] * (1 + FAKE_JITTER * _jitter(f"{name}/{position}/{metric.name}"))
            values[metric.name] = speed if metric.direction is Direction.MAX else 1 / speed
        return values


def make_clock(kind: ClockKind, *, metrics: Mapping[str, Metric] = METRICS) -> Clock:
    """The clock that `evaluation.clock` names."""
    return FakeClock(metrics) if kind is ClockKind.fake else RealClock()


def _jitter(key: str) -> float:
    """In [-1, 1), the same on every machine."""
    return int.from_bytes(sha256(key.encode()).digest()[:4], "big") / 2**31 - 1
