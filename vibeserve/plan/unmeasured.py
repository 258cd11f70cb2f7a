"""A plan for its id alone: nothing is measured, so that nobody's measurement is disturbed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vibeserve.config.host_options import HostOption
from vibeserve.hardware import HardwareFacts
from vibeserve.plan.compile import compile_plan
from vibeserve.plan.nouns import UNBOUNDED_GB_S, Plan
from vibeserve.spec import Spec


def compile_unmeasured(
    spec: Spec, *, facts: HardwareFacts, hosts: Sequence[HostOption] = (), is_asked: bool = False
) -> Plan:
    """The plan of `spec` as if no bandwidth bounded it, where it is not known. Its id, which does not cover measured
    numbers, is the real one's; its ceilings and floors of reading say nothing and refuse nothing."""
    known = replace(facts, bandwidth_gb_s=facts.bandwidth_gb_s or UNBOUNDED_GB_S)
    return compile_plan(spec, facts=known, hosts=hosts, is_asked=is_asked)
