"""A measured grid as a document, and the lines that it grows from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.search.grid import Setting, grid_points, key_of


@dataclass(frozen=True, kw_only=True)
class Point:
    """Document, one line of the work file: one assembly beside the control, in pair order."""

    components: tuple[str, ...]
    parameters: dict[str, float | int | str | bool]
    windows: tuple[float, ...] = ()
    """of the headline metric"""
    control: tuple[float, ...] = ()
    spans: dict[str, float] = field(default_factory=dict)
    """shares of the requests' wall time"""
    error: str = ""
    """why it could not be measured"""
    measured_at: str = ""
    seconds: float = 0.0
    schema_version: int = 1

    @property
    def log_ratio(self) -> float:
        """Median over the pairs, over the control; > 0 is better where more is better."""
        return median(math.log(ours / theirs) for ours, theirs in zip(self.windows, self.control, strict=True))


@dataclass(frozen=True, kw_only=True)
class Twin:
    """Document, one line of the work file: the control beside a fresh start of itself."""

    first: tuple[float, ...]
    second: tuple[float, ...]
    measured_at: str = ""
    schema_version: int = 1

    @property
    def log_ratios(self) -> tuple[float, ...]:
        return tuple(math.log(two / one) for one, two in zip(self.first, self.second, strict=True))


@dataclass(frozen=True, kw_only=True)
class Table:
    """Document: a whole grid of one target on one machine."""

    target: str
    load: str
    metric: str
    machine: str
    hardware: str
    """digest of the machine's identity: tables of different machines are never mixed"""
    date: str
    window_s: float
    warmup_s: float
    num_pairs: int
    control: Point
    """what every point was measured beside; no windows of its own"""
    points: tuple[Point, ...]
    twins: tuple[Twin, ...]
    num_missing: int = 0
    """points of the grid that were not measured"""
    schema_version: int = 1

    def by_key(self, setting: Setting) -> dict[str, Point]:
        """The measured points, by `key_of`."""
        return {key_of(each.components, each.parameters, setting): each for each in self.points if not each.error}


def missing(points: Sequence[Point], setting: Setting) -> int:
    """How many points of the grid have no windows yet."""
    have = {key_of(each.components, each.parameters, setting) for each in points}
    return sum(key_of(each.components, each.parameters, setting) not in have for each in grid_points(setting))
