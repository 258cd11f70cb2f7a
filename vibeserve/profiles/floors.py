"""What the roofline allows per output token, whole and by seam, from the plan's floor of a decode step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vibeserve.hardware.roofline import read_floor_s
from vibeserve.plan import Plan
from vibeserve.plan.memory import GIB
from vibeserve.plan.nouns import COMPUTE, DecodeFloor


@dataclass(frozen=True, kw_only=True)
class UnitFloors:
    """Shortest times of one output token of one sequence, in a full batch. None and absent: nothing bounds it."""

    whole_s: float | None = None
    by_seam: Mapping[str, float] = field(default_factory=dict)


UNBOUNDED = UnitFloors()
"""where no plan says anything"""


def unit_floors(plan: Plan, *, load: str) -> UnitFloors:
    """By seam: `linear` reads the weights once a step, `attention` the KV cache and the states of all sequences.

    Prefill is not in it, so a distance to it is what decoding alone could win.
    """
    return floors_of(plan.decode, load=load, bandwidth_gb_s=plan.roof.bandwidth_gb_s)


def floors_of(decode: Sequence[DecodeFloor], *, load: str, bandwidth_gb_s: float) -> UnitFloors:
    """The same from a plan's parts."""
    floor = next((each for each in decode if each.load == load), None)
    if floor is None or floor.step_s is None or floor.num_sequences <= 0:
        return UNBOUNDED
    whole_s = floor.step_s / floor.num_sequences
    if floor.bound_by == COMPUTE or not bandwidth_gb_s:
        return UnitFloors(whole_s=whole_s, by_seam={"linear": whole_s})
    read_gib = {"linear": floor.weights_gib, "attention": floor.kv_gib + floor.state_gib}
    each_s = {
        seam: read_floor_s(gib * GIB, bandwidth_gb_s=bandwidth_gb_s) / floor.num_sequences
        for seam, gib in read_gib.items()
        if gib > 0
    }
    return UnitFloors(whole_s=whole_s, by_seam=each_s)
