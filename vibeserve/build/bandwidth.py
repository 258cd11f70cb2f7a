"""Read bandwidth of the engine's cores for a plan's roofline: measured with the device held, and whether it can be
trusted."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from vibeserve.benchmark.disturbance import MAX_PRESSURE
from vibeserve.benchmark.sentinel import pressure_total_s
from vibeserve.hardware import HardwareFacts, measure_bandwidth_gb_s
from vibeserve.lease import Lease
from vibeserve.plan import Plan

NUM_READINGS = 3
"""the best of them counts: what else runs only ever makes a reading slower"""


@dataclass(frozen=True, kw_only=True)
class Bandwidth:
    """`gb_s` 0 = none is needed. `is_disturbed`: some task of the machine waited for a core most of the time, so that
    the true rate may be several times as high."""

    gb_s: float
    is_disturbed: bool = False

    def facts(self, facts: HardwareFacts) -> HardwareFacts:
        """`facts` with this reading."""
        return replace(facts, bandwidth_gb_s=self.gb_s, is_bandwidth_disturbed=self.is_disturbed)


def read_bandwidth(plan: Plan, *, facts: HardwareFacts, lease: Lease) -> Bandwidth:
    """The bandwidth that bounds `plan` where that is not declared: it waits for the device like any measurement."""
    hardware = plan.spec.hardware
    if facts.bandwidth_gb_s or hardware.bandwidth_gb_s or hardware.kind != "cpu" or not plan.engine_cpus:
        return Bandwidth(gb_s=facts.bandwidth_gb_s, is_disturbed=facts.is_bandwidth_disturbed)
    with lease.exclusive("read bandwidth"):
        waited_s, started_s = pressure_total_s(), time.monotonic()
        best_gb_s = max(measure_bandwidth_gb_s(plan.engine_cpus) for _ in range(NUM_READINGS))
        share = (pressure_total_s() - waited_s) / (time.monotonic() - started_s)
    return Bandwidth(gb_s=best_gb_s, is_disturbed=share > MAX_PRESSURE)
