"""Which pairs of windows the machine spoilt. Pure, and blind to the metrics: a pair is dropped for what the machine
did, never for what it showed, so that dropping cannot favour anybody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vibeserve.benchmark.interleaving import Slice

MAX_PRESSURE = 0.5
"""share of the sentinel's time, with all contenders paused, in which some task of the machine waited for a core"""
MAX_STEAL = 0.1
"""of the engine's cores, in a window"""
MAX_FOREIGN = 0.25
"""of the engine's cores' time in a window, spent by processes outside the measured tree; interrupts and the controller
itself stay below a tenth here"""
MIN_BANDWIDTH = 0.5
"""of the median of the pairs so far: memory bandwidth drifts, and a half is no drift"""
_BANDWIDTH = "sentinel_huge_gb_s"


@dataclass(frozen=True, kw_only=True)
class DisturbedPair:
    """Document: a pair that was measured and dropped. Infrastructure, not a score."""

    pair: int
    """the one that it was to become"""
    reasons: tuple[str, ...]
    facts: dict[str, dict[str, float]] = field(default_factory=dict)
    """by contender"""


def disturbances(slices: Sequence[Slice], *, bandwidths: Sequence[float]) -> tuple[str, ...]:
    """Why the slices of one pair say nothing; empty when they stand. `bandwidths`: the sentinel's readings so far."""
    found = []
    for part in slices:
        found += [f"{part.contender}: {reason}" for reason in _window_reasons(part.facts)]
    facts = slices[0].facts if slices else {}
    if facts.get("psi_share", 0.0) > MAX_PRESSURE:
        found.append(f"other work waited for a core in {facts['psi_share']:.0%} of the time before the pair")
    reading = facts.get(_BANDWIDTH)
    if reading is not None and len(bandwidths) > 1 and reading < MIN_BANDWIDTH * median(bandwidths):
        found.append(f"memory bandwidth {reading:.1f} GB/s, the median was {median(bandwidths):.1f}")
    return tuple(found)


def bandwidth_of(slices: Sequence[Slice]) -> list[float]:
    """The sentinel's reading before that pair, if there is one."""
    return [part.facts[_BANDWIDTH] for part in slices[:1] if _BANDWIDTH in part.facts]


def _window_reasons(facts: dict[str, float]) -> list[str]:
    reasons = []
    if facts.get("steal_share", 0.0) > MAX_STEAL:
        reasons.append(f"the hypervisor took {facts['steal_share']:.0%} of the engine's cores")
    if facts.get("foreign_share", 0.0) > MAX_FOREIGN:
        reasons.append(f"other processes took {facts['foreign_share']:.0%} of the engine's cores")
    if facts.get("num_throttled", 0.0) > 0:
        reasons.append("the clock was throttled")
    return reasons
