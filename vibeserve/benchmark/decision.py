"""The decision on a candidate: pure, lexicographic, fail closed.

Validity, then guards, then the headline, then simplicity. Accepted on the headline only when the lower end of the interval
is above 1 *and* the median gain is above max(min_effect, noise floor).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from vibeserve.benchmark.statistics import NUM_RESAMPLES, paired_ratio
from vibeserve.core.nouns import Decision, Metric, RatioInterval
from vibeserve.errors import RefusedError

Windows = Sequence[Mapping[str, float]]


@dataclass(frozen=True, kw_only=True)
class Guard:
    """A bound on the median of a metric over the windows; in the metric's own unit."""

    metric: Metric
    max_value: float | None = None
    min_value: float | None = None

    def excess(self, value: float) -> float:
        """How far beyond the bound, as a share of it; 0 when it holds."""
        over = value / self.max_value - 1 if self.max_value is not None else 0.0
        under = 1 - value / self.min_value if self.min_value is not None else 0.0
        return max(over, under, 0.0)

    @property
    def bound(self) -> str:
        bounds = ((f"<= {self.max_value:g}", self.max_value), (f">= {self.min_value:g}", self.min_value))  # type: ignore[str-format]
        return " and ".join(text for text, value in bounds if value is not None)
