"""Spec -> Plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from vibeserve.config.host_options import HostOption
from vibeserve.core.documents import digest_of, to_data
from vibeserve.errors import SpecError
from vibeserve.hardware import HardwareFacts, measure_bandwidth_gb_s, resolve_cpus
from vibeserve.hardware.cores import format_cpus
from vibeserve.hardware.match import fitting_gpus
from vibeserve.plan.ceilings import compute_ceilings
from vibeserve.plan.cost import run_cost
from vibeserve.plan.demand import demand_of
from vibeserve.plan.digests import input_digests
from vibeserve.plan.floors import Floors, tflops_of
from vibeserve.plan.goals import ratio_bounds, refuse_unreachable, slack_of
from vibeserve.plan.notes import notes_of
from vibeserve.plan.nouns import DecodeFloor, Plan, PrefillFloor, Roof
from vibeserve.plan.parallelism import choose_layout
from vibeserve.plan.pins import refuse_wrong_pins
from vibeserve.plan.placement import default_hosts, is_here, next_steps, obstacles_of
from vibeserve.plan.seed import SEED_PLACES, with_seed
from vibeserve.plan.sizes import with_sizes
from vibeserve.plan.steps import plan_steps, scaled_schedule
from vibeserve.sandbox import resolve_tier
from vibeserve.schedules import SCHEDULES
from vibeserve.spec import Modality, Spec
from vibeserve.workloads import WORKLOAD_FILES

UNHASHED = ("out_dir", "require_goal")
"""fields of the spec that change where a result goes or how a command exits, not the result"""

HOST_PLACES = ("address", "python", "root", "ssh_config", "options", "wait_s", "idle_s")
"""of a host: how it is reached. What it is enters by the hardware's identity"""

NO_CPUS: tuple[int, ...] = ()


def compile_plan(
    spec: Spec, *, facts: HardwareFacts, hosts: Sequence[HostOption] = (), is_asked: bool = False
) -> Plan:
    """The plan of `spec`, for the machine of `facts` where that has the declared hardware, else for the hardware as it
    is declared. `is_asked`: the facts are the declared host's, which has been asked, and not this machine's.

    What keeps the target from running here is in `obstacles` (`refuse_obstacles` stops a run); `hosts` are those that
    could be selected, by default this machine alone. Raises SpecError for what no machine can do as declared,
    InfraError when the declared wall cannot be built here. Starts nothing but the probe of that wall; where the
    bandwidth of this machine is neither declared nor in `facts` it is measured (some tenths of a second), and stays
    out of the hash.
    """
    refuse_wrong_pins(spec, facts=facts)
    here = facts if is_here(spec, facts, is_asked=is_asked) else None
    resolved, engine_cpus, client_cpus = resolve(spec, here=here)
    layout, memory = choose_layout(resolved, capacity_gib=_capacity_gib(resolved, here=here))
    resolved = dataclasses.replace(resolved, parallelism=layout)
    floors = Floors(resolved, _roof(resolved, here=here, engine_cpus=engine_cpus))
    ceilings = compute_ceilings(resolved, floors)
    ratios = ratio_bounds(resolved, ceilings)
    refuse_unreachable(resolved, ceilings, ratios, measured_slack=slack_of(floors.roof))
    schedule = scaled_schedule(SCHEDULES[resolved.budget.level], evaluation=resolved.evaluation)
    resolved = with_seed(resolved)
    digests = input_digests(resolved, facts=here)
    steps = plan_steps(resolved, schedule)
    minutes = sum(step.minutes for step in steps)
    obstacles = obstacles_of(resolved, facts, hosts=hosts or default_hosts(), is_asked=is_asked)
    return Plan(
        plan_id=digest_of({"spec": hashed_spec(resolved), "digests": digests})[:16],
        spec=resolved,
        engine_cpus=engine_cpus,
        client_cpus=client_cpus,
        threads=resolved.hardware.engine_threads,
        schedule=schedule,
        memory=memory,
        ceilings=ceilings,
        steps=steps,
        digests=digests,
        roof=floors.roof,
        prefill=_prefill(resolved, floors),
        decode=tuple(_decode(resolved, floors)),
        ratios=ratios,
        cost=run_cost(resolved, minutes=minutes, ceilings=ceilings, ratios=ratios),
        obstacles=obstacles,
        next_steps=next_steps(resolved, obstacles),
        notes=tuple(notes_of(resolved, floors=floors, memory=memory, schedule=schedule, steps=steps)),
    )


def resolve(spec: Spec, *, here: HardwareFacts | None) -> tuple[Spec, tuple[int, ...], tuple[int, ...]]:
    """(a copy of `spec` with its sizes derived and, on the machine of `here`, without any `auto`; engine's and load
    generator's CPUs). Measured numbers are not written into it: it is hashed. What another machine would resolve stays
    `auto`, and there are no CPUs."""
    sized = dataclasses.replace(spec, model=with_sizes(spec.model))
    if here is None:
        return sized, NO_CPUS, NO_CPUS
    _refuse_threads(spec, here)
    engine_cpus, client_cpus = resolve_cpus(spec.hardware, here)
    _refuse_shared_cpus(spec, engine_cpus, client_cpus, facts=here)
    hardware = dataclasses.replace(
        spec.hardware,
        engine_cpus=format_cpus(engine_cpus),
        client_cpus=format_cpus(client_cpus),
        engine_threads=spec.hardware.engine_threads or len(engine_cpus),
    )
    tier = resolve_tier(spec.sandbox.tier, allow_none=spec.sandbox.allow_none)
    sandbox = dataclasses.replace(spec.sandbox, tier=tier)
    return dataclasses.replace(sized, hardware=hardware, sandbox=sandbox), engine_cpus, client_cpus


def hashed_spec(spec: Spec) -> dict[str, Any]:
    """The part of the resolved spec that the plan's digest covers. Files enter by content, not by place."""
    return hashed_data(to_data(spec))


def hashed_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """The same of a spec as data, as an artifact holds it."""
    workload = dict(data["workload"])
    workload |= {name: PurePath(workload[name]).name for name in WORKLOAD_FILES}
    parts = {
        "target": {"name": data["target"]["name"]},
        "workload": workload,
        "seed": {name: value for name, value in data["seed"].items() if name not in SEED_PLACES},
        "host": {name: value for name, value in data["host"].items() if name not in HOST_PLACES},
    }
    return {name: value for name, value in {**data, **parts}.items() if name not in UNHASHED}


def _refuse_threads(spec: Spec, facts: HardwareFacts) -> None:
    threads = spec.hardware.engine_threads
    if threads > facts.num_cpus:
        raise SpecError(
            f"target '{spec.target.name}' cannot run on this machine",
            problems=[f"hardware.engine_threads: {threads} is above the {facts.num_cpus} CPUs here"],
            hint="vibeserve doctor",
        )


def _refuse_shared_cpus(spec: Spec, engine: tuple[int, ...], client: tuple[int, ...], *, facts: HardwareFacts) -> None:
    """With one core they have to share it."""
    both = tuple(cpu for cpu in engine if cpu in client)
    if both and facts.num_cpus > 1:
        raise SpecError(
            f"target '{spec.target.name}' cannot run on this machine",
            problems=[
                f"hardware.client_cpus: CPU {format_cpus(both)} is of hardware.engine_cpus too; a load generator on "
                "the engine's cores disturbs what it measures"
            ],
            hint=f"leave both at auto, or share {format_cpus(facts.cpus)} out between them",
        )


def _prefill(spec: Spec, floors: Floors) -> PrefillFloor | None:
    if not _has_floors(spec):
        return None
    return floors.prefill(demand_of(spec, spec.workload.headline_load))


def _decode(spec: Spec, floors: Floors) -> Iterator[DecodeFloor]:
    for name in spec.workload.loads if _has_floors(spec) else ():
        demand = demand_of(spec, name)
        yield floors.decode_floor(demand, num_sequences=demand.num_sequences / spec.parallelism.replicas)


def _has_floors(spec: Spec) -> bool:
    """Decoding and prefill are what a text model does."""
    return spec.model.modality is Modality.text and spec.model.num_parameters > 0


def _capacity_gib(spec: Spec, *, here: HardwareFacts | None) -> float | None:
    """Of one rank: declared, else probed; None = unknown."""
    hardware = spec.hardware
    if hardware.kind == "cpu" and hardware.memory_gib:
        return hardware.memory_gib * hardware.count
    if hardware.memory_gib:
        return hardware.memory_gib
    if here is None:
        return None
    if hardware.kind == "cuda":
        return min(fitting_gpus(hardware, here))
    return here.memory_gib


def _roof(spec: Spec, *, here: HardwareFacts | None, engine_cpus: tuple[int, ...]) -> Roof:
    """Of one rank. The sockets of a CPU are one rank together."""
    hardware = spec.hardware
    num_joined = hardware.count if hardware.kind == "cpu" else 1
    bandwidth, is_measured = hardware.bandwidth_gb_s * num_joined, False
    if not bandwidth and here is not None and hardware.kind == "cpu":
        bandwidth, is_measured = here.bandwidth_gb_s or measure_bandwidth_gb_s(engine_cpus), True
    return Roof(
        bandwidth_gb_s=bandwidth,
        is_measured=is_measured,
        is_disturbed=is_measured and here is not None and here.is_bandwidth_disturbed,
        tflops=tflops_of(spec) * num_joined,
        interconnect_gb_s=hardware.interconnect_gb_s,
    )
