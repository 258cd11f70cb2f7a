"""Limits between honest noise and the smallest fault, chosen from measurements."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from vibeserve.errors import RefusedError

SAFETY = 2.0
"""a limit is at least so many times the largest honest noise"""
MIN_SPREAD = 5.0
"""a distance tells a fault from noise when it is so many times as far off: its root, rounded, is above SAFETY"""
NOISELESS_SHARE = 1e-3
"""of the smallest fault: taken for the noise where the rounded model gives the very same numbers"""


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One faulty or noisy reply: its fault, and its largest value of each distance.

    A distance without values, where there should be some, is infinite: nothing like that is ever accepted.
    """

    fault: str
    is_wrong: bool
    distances: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class ChosenLimit:
    """One bound and the measurements that it comes from."""

    distance: str
    bound: float
    noise: float
    """largest value of an honest reply"""
    fault: str
    """the smallest fault that this distance tells from noise; empty = it tells none"""
    fault_value: float
    """smallest value of a reply with that fault"""
    is_default: bool = False
    """the bound is the framework's own, which fits these measurements"""

    def line(self) -> str:
        """The measurements in one line."""
        if not self.fault:
            return f"{self.distance}: noise up to {self.noise:.2g}; it tells no fault from noise, so {SAFETY:g} x noise"
        kept = f"; the default {self.bound:g} is kept" if self.is_default else ""
        return (
            f"{self.distance}: noise up to {self.noise:.2g}, smallest fault {self.fault} {self.fault_value:.2g}{kept}"
        )


def choose_limits(tried: Sequence[Tried], *, defaults: Mapping[str, float] | None = None) -> list[ChosenLimit]:
    """One limit per distance, such that noise passes by a factor of SAFETY and every fault is refused by one at least.

    The geometric mean of noise and smallest fault, of the faults that this distance tells from noise; a default that
    lies between them is kept. RefusedError with the numbers where a fault looks like noise under every distance.
    """
    names = list(dict.fromkeys(name for reply in tried for name in reply.distances))
    limits = [_choose(name, tried, default=(defaults or {}).get(name)) for name in names]
    unseen = [fault for fault in _faults(tried) if not any(_sees(limit, fault, tried) for limit in limits)]
    if unseen:
        rows = [f"  {fault}: {_compared(fault, limits, tried)}" for fault in unseen]
        raise RefusedError(
            "no limits can tell these faults from honest noise:\n"
            + "\n".join(rows)
            + "\nnext: give check.py a distance"
            " that sees them, make the faults of faults.py wrong beyond doubt, or the noisy one less noisy"
        )
    return limits


def _choose(name: str, tried: Sequence[Tried], *, default: float | None) -> ChosenLimit:
    noise = max((reply.distances.get(name, 0.0) for reply in tried if not reply.is_wrong), default=0.0)
    told = {fault: value for fault, value in _smallest(name, tried).items() if value > MIN_SPREAD * noise}
    fault = min(told, key=lambda item: told[item], default="")
    value = told.get(fault, 0.0)
    if default is not None and SAFETY * noise <= default and (not fault or default < value):
        return ChosenLimit(distance=name, bound=default, noise=noise, fault=fault, fault_value=value, is_default=True)
    is_open = not fault or math.isinf(value)
    bound = SAFETY * noise if is_open else math.sqrt((noise or NOISELESS_SHARE * value) * value)
    return ChosenLimit(distance=name, bound=_rounded(bound), noise=noise, fault=fault, fault_value=value)


def _smallest(name: str, tried: Iterable[Tried]) -> dict[str, float]:
    """Of every fault its smallest value: one reply must be enough to refuse."""
    found: dict[str, float] = {}
    for reply in tried:
        if reply.is_wrong:
            found[reply.fault] = min(found.get(reply.fault, math.inf), reply.distances.get(name, 0.0))
    return found


def _faults(tried: Iterable[Tried]) -> list[str]:
    return list(dict.fromkeys(reply.fault for reply in tried if reply.is_wrong))


def _sees(limit: ChosenLimit, fault: str, tried: Sequence[Tried]) -> bool:
    return bool(limit.fault) and _smallest(limit.distance, tried)[fault] > limit.bound


def _compared(fault: str, limits: Sequence[ChosenLimit], tried: Sequence[Tried]) -> str:
    values = {limit.distance: _smallest(limit.distance, tried)[fault] for limit in limits}
    return ", ".join(f"{it.distance} from {values[it.distance]:.2g}, noise up to {it.noise:.2g}" for it in limits)


def _rounded(bound: float) -> float:
    """Two digits are all that a few replies can tell."""
    return float(f"{bound:.2g}")
