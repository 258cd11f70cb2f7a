"""Spec -> Plan."""

from __future__ import annotations

import dataclasses
from typing import Any

from vibeserve.core.documents import digest_of, to_data
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.hardware import HardwareFacts, measure_bandwidth_gb_s, mismatch, resolve_cpus
from vibeserve.hardware.cores import format_cpus
from vibeserve.plan.ceilings import Bandwidth, compute_ceilings, refuse_unreachable
from vibeserve.plan.digests import input_digests
from vibeserve.plan.memory import estimate_memory
from vibeserve.plan.nouns import Plan
from vibeserve.plan.sizes import with_sizes
from vibeserve.plan.steps import plan_steps, scaled_schedule
from vibeserve.sandbox import resolve_tier
from vibeserve.spec import SCHEDULES, Spec

SCAFFOLD_ARCHITECTURES = {"text": ("llama",)}
"""architectures that the scaffold of a modality implements"""

UNHASHED = ("out_dir", "require_goal")
"""fields of the spec that change where a result goes or how a command exits, not the result"""


def compile_plan(spec: Spec, *, facts: HardwareFacts) -> Plan:
    """The plan of `spec` on the machine of `facts`.

    Raises SpecError for what this machine or this version cannot run, InfraError when the declared wall cannot be
    built here. Starts nothing but the probe of that wall; where the bandwidth is neither
    declared nor in `facts` it is measured (some tenths of a second), and stays out of the hash.
    """
    _refuse_combinations(spec, facts)
    engine_cpus, client_cpus = resolve_cpus(spec.hardware, facts)
    resolved = resolve(spec, engine_cpus=engine_cpus, client_cpus=client_cpus)
    bandwidth = _bandwidth(resolved, facts, engine_cpus=engine_cpus)
    memory = estimate_memory(resolved, capacity_gib=_capacity_gib(resolved, facts))
    ceilings = compute_ceilings(resolved, bandwidth=bandwidth)
    refuse_unreachable(resolved, ceilings)
    schedule = scaled_schedule(SCHEDULES[resolved.budget.level], evaluation=resolved.evaluation)
    digests = input_digests(resolved, facts=facts)
    return Plan(
        plan_id=digest_of({"spec": hashed_spec(resolved), "digests": digests})[:16],
        spec=resolved,
        engine_cpus=engine_cpus,
        client_cpus=client_cpus,
        threads=resolved.hardware.engine_threads,
        schedule=schedule,
        memory=memory,
        ceilings=ceilings,
        steps=plan_steps(resolved, schedule),
        digests=digests,
    )


def resolve(spec: Spec, *, engine_cpus: tuple[int, ...], client_cpus: tuple[int, ...]) -> Spec:
    """A copy of `spec` without any `auto`. Measured numbers are not written into it: it is hashed."""
    hardware = dataclasses.replace(
        spec.hardware,
        engine_cpus=format_cpus(engine_cpus),
        client_cpus=format_cpus(client_cpus),
        engine_threads=spec.hardware.engine_threads or len(engine_cpus),
    )
    tier = resolve_tier(spec.sandbox.tier, allow_none=spec.sandbox.allow_none)
    sandbox = dataclasses.replace(spec.sandbox, tier=tier)
    return dataclasses.replace(spec, model=with_sizes(spec.model), hardware=hardware, sandbox=sandbox)


def hashed_spec(spec: Spec) -> dict[str, Any]:
    """The part of the resolved spec that the plan's digest covers."""
    data: dict[str, Any] = to_data(spec)
    data["target"] = {"name": spec.target.name}
    return {name: value for name, value in data.items() if name not in UNHASHED}


def _refuse_combinations(spec: Spec, facts: HardwareFacts) -> None:
    """What no machine, or not this one, can run."""
    problems = []
    modality, architecture = spec.model.modality.name, spec.model.architecture
    known = SCAFFOLD_ARCHITECTURES.get(modality, ())
    if not (data_dir("templates") / "runtime" / modality).is_dir() or not known:
        valid = ", ".join(SCAFFOLD_ARCHITECTURES)
        problems.append(f"model.modality: there is no scaffold for {modality}; valid: {valid}")
    elif architecture not in known:
        problems.append(f"model.architecture: the scaffold has no '{architecture}'; valid: {', '.join(known)}")
    why_not = mismatch(spec.hardware, facts)
    if why_not:
        problems.append(f"hardware: {why_not}")
    threads = spec.hardware.engine_threads
    if threads > facts.num_cpus:
        problems.append(f"hardware.engine_threads: {threads} is above the {facts.num_cpus} CPUs here")
    if problems:
        raise SpecError(
            f"target '{spec.target.name}' cannot run on this machine", problems=problems, hint="vibeserve doctor"
        )


def _capacity_gib(spec: Spec, facts: HardwareFacts) -> float:
    if spec.hardware.memory_gib:
        return spec.hardware.memory_gib * spec.hardware.count
    return facts.memory_gib


def _bandwidth(spec: Spec, facts: HardwareFacts, *, engine_cpus: tuple[int, ...]) -> Bandwidth:
    if spec.hardware.bandwidth_gb_s:
        return Bandwidth(gb_s=spec.hardware.bandwidth_gb_s * spec.hardware.count, is_measured=False)
    if facts.bandwidth_gb_s:
        return Bandwidth(gb_s=facts.bandwidth_gb_s, is_measured=True)
    if spec.hardware.kind != "cpu":
        return Bandwidth(gb_s=0.0, is_measured=False)
    return Bandwidth(gb_s=measure_bandwidth_gb_s(engine_cpus), is_measured=True)
