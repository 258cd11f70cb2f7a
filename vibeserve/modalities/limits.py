"""Limits of a check, and a target's own bounds over them (`evaluation.tolerances.limits`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from vibeserve.contract import Limit, Statistic
from vibeserve.errors import SpecError

KEY = "evaluation.tolerances.limits"
FORM = "DISTANCE/STATISTIC, the statistic one of max, mean, p99, share_at_least/THRESHOLD"


def with_overrides(limits: Iterable[Limit], overrides: Mapping[str, float]) -> tuple[Limit, ...]:
    """`limits` with the bounds of `overrides` in place of theirs; a key that fits none of them adds a limit.

    SpecError lists every key that is none, and every bound that is no number.
    """
    problems = [problem for key, bound in overrides.items() for problem in override_problems(key, bound)]
    if problems:
        raise SpecError(f"{KEY} is not valid", problems=problems, hint="docs/contract.md")
    by_key = {key_of(limit): limit for limit in limits}
    for key, bound in overrides.items():
        by_key[key] = replace(by_key.get(key) or _limit_of(key), bound=float(bound))
    return tuple(by_key.values())


def override_problems(key: str, bound: float) -> list[str]:
    """What is wrong with one entry; empty when nothing is."""
    name, _, rest = key.partition("/")
    statistic, _, threshold = rest.partition("/")
    is_share = statistic == Statistic.share_at_least.value
    is_known = statistic in Statistic.__members__ and (_is_number(threshold) if is_share else not threshold)
    problems = [] if name and is_known else [f"{KEY}.{key}: expected {FORM}"]
    if not isinstance(bound, int | float) or not math.isfinite(bound):
        problems.append(f"{KEY}.{key}: {bound} is no finite number")
    return problems


def key_of(limit: Limit) -> str:
    """How a target names the limit."""
    threshold = f"/{limit.at:g}" if limit.statistic is Statistic.share_at_least else ""
    return f"{limit.distance}/{limit.statistic.value}{threshold}"


def milder(limits: Iterable[Limit], *, than: Iterable[Limit]) -> list[str]:
    """Every limit of `than` that `limits` lack or exceed. All are bounds from above, so that larger is milder."""
    bounds = {key_of(limit): limit.bound for limit in limits}
    found = []
    for limit in than:
        key = key_of(limit)
        if key not in bounds:
            found.append(f"limits lack {key}, which is at most {limit.bound:g}")
        elif not bounds[key] <= limit.bound:
            found.append(f"limits.{key} is {bounds[key]:g}, milder than {limit.bound:g}")
    return found


def _limit_of(key: str) -> Limit:
    name, statistic, *threshold = key.split("/")
    return Limit(distance=name, statistic=Statistic(statistic), bound=0.0, at=float(threshold[0]) if threshold else 0.0)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
