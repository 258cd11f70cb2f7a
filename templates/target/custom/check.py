"""How far a reply may be off: distances from what is right, and a limit for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vibeserve.contract import Distance, Limit, Record

LARGEST = 1e6

LIMITS: tuple[Limit, ...] = ()
"""the limits stand in target.yaml (`evaluation.tolerances.limits`), with the measurements that they come from"""


def compare(expected: Any, record: Record) -> Sequence[Distance]:
    """`expected` is what the reference's `run` returned for the record's request."""
    served = record.output
    if not _is_vector(served, len(expected)):
        missing = f"the reply is no list of {len(expected)} numbers"
        return [Distance(name="abs_error", values=(), missing=missing)]
    error = max(abs(right - number) for right, number in zip(expected, served, strict=True))
    return [Distance(name="abs_error", values=(error,))]


def _is_vector(value: Any, length: int) -> bool:
    """NaN and infinity lie outside of every range."""
    if not isinstance(value, list) or len(value) != length:
        return False
    return all(type(number) in (int, float) and -LARGEST < number < LARGEST for number in value)
