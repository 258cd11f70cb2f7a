"""What a plan's numbers leave out, in one line each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from vibeserve.plan.demand import demand_of
from vibeserve.plan.floors import Floors
from vibeserve.plan.goals import DISTURBED_SLACK
from vibeserve.plan.nouns import MemoryEstimate, PlanStep
from vibeserve.plan.parallelism import num_devices, num_sharing
from vibeserve.plan.steps import search_forecast
from vibeserve.schedules import Schedule
from vibeserve.spec import Modality, Spec


def notes_of(
    spec: Spec, *, floors: Floors, memory: MemoryEstimate, schedule: Schedule, steps: Sequence[PlanStep]
) -> Iterator[str]:
    """Unknown numbers, idle devices and assumptions."""
    if not spec.model.num_parameters:
        yield "model.num_parameters is not declared: weights and every floor are unknown"
    if memory.capacity_gib is None:
        yield "hardware.memory_gib is not declared: whether the model fits is unknown"
    yield from _roof(spec, floors)
    layout = spec.parallelism
    idle = num_devices(spec.hardware) - layout.tensor * layout.pipeline * layout.replicas
    if idle > 0:
        yield f"{idle} of {spec.hardware.count} devices stay idle: no layout of this model uses them all"
    yield from _modality(spec)
    yield from time_to_search(spec, schedule=schedule, steps=steps)


def time_to_search(spec: Spec, *, schedule: Schedule, steps: Sequence[PlanStep]) -> Iterator[str]:
    """A line where the wall time ends the search before its rounds are done."""
    search = search_forecast(spec, schedule)
    wall_s, other_s = spec.budget.wall_s, 60 * sum(step.minutes for step in steps if not step.is_search)
    more = f"budget.wall_s={100 * math.ceil(search.all_rounds_wall_s / 100)} has room for all {spec.budget.rounds}"
    if other_s >= wall_s:
        yield f"no time is left to search: budget.wall_s {wall_s:g}, the other steps take {other_s:.0f} s; {more}"
    elif search.num_rounds < spec.budget.rounds:
        rounds = f"about {search.num_rounds:.0f} of {spec.budget.rounds} rounds after round 0"
        yield f"budget.wall_s {wall_s:g} leaves time for {rounds}; {more}"


def _roof(spec: Spec, floors: Floors) -> Iterator[str]:
    roof = floors.roof
    if not roof.bandwidth_gb_s:
        yield "hardware.bandwidth_gb_s is unknown: reading bounds nothing"
    elif roof.is_disturbed:
        yield (
            f"the bandwidth, {roof.bandwidth_gb_s:.4g} GB/s, was read while other work waited for cores and is not "
            f"reliable: it refuses a goal only beyond {DISTURBED_SLACK:g} times what it allows"
        )
    elif spec.model.num_parameters and not floors.has_bandwidth:
        yield "a rank's weights are so small that caches may hold them: reading bounds nothing"
    if not roof.tflops:
        key = "tflops_f32" if spec.model.dtype == "float32" else "tflops_bf16"
        yield f"hardware.{key} is not declared: arithmetic bounds nothing"
    sharing = num_sharing(spec, spec.parallelism)
    if sharing > 1:
        threads = max(1, spec.hardware.engine_threads // sharing)
        yield (
            f"tensor {sharing} on one CPU: {sharing} processes of {threads} threads share its cores, memory and "
            "bandwidth; floors are those of one process, all-reduces cost on top, no gain is to be expected"
        )
    elif spec.parallelism.tensor > 1 and not roof.interconnect_gb_s:
        yield (
            "interconnect unknown: hardware.interconnect_gb_s is not declared, so the two all-reduces of every layer "
            "are left out of the decode floor"
        )


def _modality(spec: Spec) -> Iterator[str]:
    if spec.model.modality is Modality.text:
        many = [name for name in spec.workload.loads if not demand_of(spec, name).is_one_token_a_pass]
        if many:
            loads = ", ".join(many)
            yield f"loads {loads}: the answer is foretold or forced, a pass may yield many tokens; no floor per token"
        if len(many) < len(spec.workload.loads):
            yield "decode floors are those of one token a step: speculation is not in them"
    elif spec.model.modality is Modality.image and spec.model.image_head.num_tokens:
        yield "an image's floor is that of its steps or tokens: the text's prefill and the pixel decoder are left out"
    elif spec.model.modality is Modality.speech and spec.model.speech_encoder.num_layers:
        yield "a partial's floor is one pass over the newest chunk: the decoder's further tokens are left out"
    else:
        yield f"there is no roofline for modality {spec.model.modality.name}: only memory is bounded"
