"""How far a served vector may be off: in direction, and in any one of its numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from vibeserve.contract import Distance, Limit, Record

DISTANCES = ("cosine_distance", "abs_error")
"""1 - cosine of the angle to the right vector; largest difference of one number"""

LARGEST = 1e6

LIMITS: tuple[Limit, ...] = ()
"""the limits stand in target.yaml (`evaluation.tolerances.limits`), with the measurements that they come from"""


def compare(expected: Any, record: Record) -> Sequence[Distance]:
    """Both distances of one reply; without values where it is no vector of the right length."""
    served = record.output
    if not _is_vector(served, len(expected)):
        missing = f"the reply is no vector of {len(expected)} numbers"
        return [Distance(name=name, values=(), missing=missing) for name in DISTANCES]
    pairs = list(zip(expected, served, strict=True))
    error = max(abs(right - number) for right, number in pairs)
    norms = math.hypot(*expected) * math.hypot(*served)
    # a zero vector has no direction: as far off as can be
    cosine = sum(right * number for right, number in pairs) / norms if norms else -1.0
    return [Distance(name="cosine_distance", values=(1.0 - cosine,)), Distance(name="abs_error", values=(error,))]


def _is_vector(value: Any, length: int) -> bool:
    """NaN and infinity lie outside of every range."""
    if not isinstance(value, list) or len(value) != length:
        return False
    return all(type(number) in (int, float) and -LARGEST < number < LARGEST for number in value)
