"""The observer rule: a profiled run counts as timed only when it ran as fast as its control, to a tenth.

Control and profiled slices take turns on one server under one load, mirrored (control, profiled, profiled, control), so
that a linear drift of machine or load falls on both. Beyond the tolerance, in either direction, what was seen is still
true of the structure, and says nothing about time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from vibeserve.profiles.documents import Observed, Profile

MAX_EFFECT = 0.10
"""relative difference of throughput beyond which a profile is not timed"""


def order_of_slices(num_each: int) -> list[bool]:
    """Whether each slice is a profiled one: C P P C C P P C ..., `num_each` of either."""
    pattern = (False, True, True, False)
    found = [pattern[position % 4] for position in range(2 * num_each)]
    return found if sum(found) == num_each else [*found[:-1], not found[-1]]


def observe(control: Sequence[float], profiled: Sequence[float], *, metric: str) -> Observed:
    """The means of both kinds of slices. All of one kind are equally long, so their mean is the rate over all."""
    rates = [_mean(control), _mean(profiled)]
    is_known = bool(control) and bool(profiled) and all(map(math.isfinite, rates)) and rates[0] > 0
    return Observed(
        metric=metric, control=_finite(rates[0]), profiled=_finite(rates[1]),
        ratio=rates[1] / rates[0] if is_known else None, num_slices=min(len(control), len(profiled)),
    )  # fmt: skip


def is_within(observed: Observed | None) -> bool:
    """The rule. What was not compared is not within."""
    if observed is None or observed.ratio is None:
        return False
    return abs(observed.ratio - 1) <= MAX_EFFECT + 1e-9


def under_rule(profile: Profile, observed: Observed | None) -> Profile:
    """The profile as far as it may count: all of it, or its structure."""
    if is_within(observed):
        return replace(profile, observed=observed, is_timed=True)
    return replace(
        profile, observed=observed, is_timed=False, bottlenecks=(), notes=(*profile.notes, _why_not(observed))
    )


def _why_not(observed: Observed | None) -> str:
    if observed is None or observed.ratio is None:
        return "not timed: there is no control to compare with; what is kept are facts of structure"
    return (
        f"not timed: {observed.metric} was {observed.ratio:.2f} of its control's under the profiler, the rule allows "
        f"{1 - MAX_EFFECT:.2f} to {1 + MAX_EFFECT:.2f}; what is kept are facts of structure"
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0
