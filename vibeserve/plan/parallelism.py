"""How a model is spread over the declared devices, and what to do where it does not fit."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

from vibeserve.errors import SpecError
from vibeserve.hardware import describe
from vibeserve.plan.memory import estimate_memory
from vibeserve.plan.nouns import MemoryEstimate
from vibeserve.spec import Hardware, Parallelism, Spec

MAX_COUNT = 64
"""devices that the search for a fitting count looks at"""

MAX_LISTED = 12

MAX_CPU_RANKS = 16
"""tensor ranks of one CPU that are listed as valid"""


def num_devices(hardware: Hardware) -> int:
    """Devices that a model can be spread over. Sockets share one memory: a CPU is a single device."""
    return 1 if hardware.kind == "cpu" else hardware.count


def num_sharing(spec: Spec, layout: Parallelism) -> int:
    """Ranks of `layout` that share one device's cores, memory and bandwidth: all of a CPU's, one of any other's."""
    return layout.tensor if spec.hardware.kind == "cpu" else 1


def choose_layout(spec: Spec, *, capacity_gib: float | None) -> tuple[Parallelism, MemoryEstimate]:
    """The declared layout with every `auto` resolved, and the memory of one of its ranks.

    Auto is the smallest tensor parallelism, a power of two, that divides the heads and fits; then as many replicas as
    there are devices for. On a CPU several tensor ranks, which are processes that share it, are taken where they are
    declared, and each may have its share of `capacity_gib`, which is a device's. Raises SpecError for a layout that the
    devices or the model do not allow, and for a model that does not fit.
    """
    candidates = list(_layouts(spec))
    if not candidates:
        raise _no_layout(spec)
    estimates = [_memory_of(spec, item, capacity_gib=capacity_gib) for item in candidates]
    for layout, estimate in zip(candidates, estimates, strict=True):
        if estimate.fits:
            return layout, estimate
    best = min(range(len(candidates)), key=lambda index: estimates[index].total_gib)
    raise _does_not_fit(spec, candidates[best], estimates[best])


def _memory_of(spec: Spec, layout: Parallelism, *, capacity_gib: float | None) -> MemoryEstimate:
    share_gib = None if capacity_gib is None else capacity_gib / num_sharing(spec, layout)
    return estimate_memory(spec, parallelism=layout, capacity_gib=share_gib)


def _layouts(spec: Spec) -> Iterator[Parallelism]:
    """Layouts that the declaration allows, the preferred one first."""
    declared, count = spec.parallelism, num_devices(spec.hardware)
    if spec.hardware.kind == "cpu":
        layout = _filled(declared, count=1)
        if layout.pipeline == layout.replicas == 1 and not indivisible(spec, layout):
            yield layout
        return
    is_free = not (declared.tensor or declared.pipeline or declared.replicas)
    for tensor in [declared.tensor] if declared.tensor else range(1, count + 1):
        is_power = tensor & (tensor - 1) == 0
        pipeline = declared.pipeline or 1
        if declared.tensor and declared.replicas and not declared.pipeline:
            pipeline = max(1, count // (tensor * declared.replicas))  # nothing else is left to choose
        replicas = declared.replicas or count // (tensor * pipeline)
        layout = Parallelism(tensor=tensor, pipeline=pipeline, replicas=replicas)
        is_whole = tensor * pipeline * replicas == count or (is_free and replicas >= 1)
        if is_whole and (is_power or declared.tensor) and not indivisible(spec, layout):
            yield layout


def indivisible(spec: Spec, layout: Parallelism) -> str:
    """Why the model cannot be split so, or nothing. Sizes that are not declared split anyhow."""
    model, tensor = spec.model, layout.tensor
    for name, size in (
        ("model.num_heads", model.num_heads),
        ("model.linear_state.num_value_heads", model.linear_state.num_value_heads),
        ("model.intermediate_size", model.intermediate_size),
    ):
        if size % tensor:
            return f"tensor {tensor} does not divide {name} {size}"
    heads = model.num_kv_heads
    if heads and heads % tensor and tensor % heads:
        return f"tensor {tensor} and model.num_kv_heads {heads}: neither divides the other"
    if model.num_layers and layout.pipeline > model.num_layers:
        return f"pipeline {layout.pipeline} is above model.num_layers {model.num_layers}"
    return ""


def _no_layout(spec: Spec) -> SpecError:
    declared, count = spec.parallelism, num_devices(spec.hardware)
    problems = [why for why in [indivisible(spec, _filled(declared, count=count))] if why]
    valid = [_named(layout) for layout in _every_layout(spec)]
    more = f"; and {len(valid) - MAX_LISTED} more" if len(valid) > MAX_LISTED else ""
    problems.append(f"valid: {'; '.join(valid[:MAX_LISTED])}{more}")
    is_cpu = spec.hardware.kind == "cpu"
    what, rule = describe(spec.hardware), f"the product must be {count}"
    if is_cpu:
        what, rule = "one CPU", "it is one device, which only tensor ranks may share"
    return SpecError(
        f"parallelism: {_named(declared)} is no layout of {what}: {rule}",
        problems=problems,
        hint="correct parallelism.*, or leave it at 0 (auto)",
    )


def _filled(declared: Parallelism, *, count: int) -> Parallelism:
    """The declared values, 1 for the others: what divisibility is checked on."""
    return Parallelism(
        tensor=declared.tensor or 1, pipeline=declared.pipeline or 1, replicas=declared.replicas or count
    )


def _every_layout(spec: Spec) -> Iterator[Parallelism]:
    """Every layout that uses all devices and that the model allows."""
    count = num_devices(spec.hardware)
    if spec.hardware.kind == "cpu":
        shared = (Parallelism(tensor=tensor, pipeline=1, replicas=1) for tensor in range(1, MAX_CPU_RANKS + 1))
        yield from (layout for layout in shared if not indivisible(spec, layout))
        return
    for tensor in range(1, count + 1):
        for pipeline in range(1, count // tensor + 1):
            layout = Parallelism(tensor=tensor, pipeline=pipeline, replicas=count // (tensor * pipeline))
            if layout.replicas * tensor * pipeline == count and not indivisible(spec, layout):
                yield layout


def _named(layout: Parallelism) -> str:
    words = {name: getattr(layout, name) or "auto" for name in ("tensor", "pipeline", "replicas")}
    return ", ".join(f"{name} {value}" for name, value in words.items())


def _does_not_fit(spec: Spec, layout: Parallelism, estimate: MemoryEstimate) -> SpecError:
    parts = (
        f"weights {estimate.weights_gib:.1f}, KV cache {estimate.kv_cache_gib:.1f} (shared prefixes "
        f"{estimate.prefix_kv_gib:.1f}), state {estimate.state_gib:.1f}, workspace {estimate.workspace_gib:.1f} GiB"
    )
    where = f"at {_named(layout)}, load {estimate.load}: {estimate.num_sequences} requests in flight on one replica"
    options = list(_what_would_fit(spec, layout, capacity_gib=estimate.capacity_gib))
    shorter = "" if estimate.weights_gib >= (estimate.capacity_gib or math.inf) else " or shorter lengths"
    return SpecError(
        f"the model does not fit: one rank needs {estimate.total_gib:.1f} GiB, "
        f"its capacity is {estimate.capacity_gib:.1f} GiB",
        problems=[parts, where, f"would fit: {'; '.join(options) or f'nothing but a smaller model{shorter}'}"],
        hint="change one of these, or select another hardware",
    )


def _what_would_fit(spec: Spec, layout: Parallelism, *, capacity_gib: float | None) -> Iterator[str]:
    """Each of the smallest changes that help by themselves."""
    most = _most_in_flight(spec, layout, capacity_gib=capacity_gib)
    if most:
        yield f"{most} requests in flight at most"
    if spec.model.dtype == "float32" and not spec.model.weight_bits:
        smaller = dataclasses.replace(spec, model=dataclasses.replace(spec.model, dtype="bfloat16"))
        if estimate_memory(smaller, parallelism=layout, capacity_gib=capacity_gib).fits:
            yield "model.dtype=bfloat16"
    if spec.hardware.kind == "cpu":
        return
    for count in range(spec.hardware.count + 1, MAX_COUNT + 1):
        hardware = dataclasses.replace(spec.hardware, count=count)
        more = dataclasses.replace(spec, hardware=hardware, parallelism=Parallelism())
        for item in _layouts(more):
            if estimate_memory(more, parallelism=item, capacity_gib=capacity_gib).fits:
                yield f"hardware.count={count} with {_named(item)}"
                return


def _most_in_flight(spec: Spec, layout: Parallelism, *, capacity_gib: float | None) -> int:
    """Largest number of requests in flight, over all replicas, that fits; 0 = not even one."""
    fits, too_many = 0, estimate_memory(spec, parallelism=layout, capacity_gib=capacity_gib).num_sequences
    too_many *= layout.replicas
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        tried = estimate_memory(spec, parallelism=layout, capacity_gib=capacity_gib, num_sequences=middle)
        fits, too_many = (middle, too_many) if tried.fits else (fits, middle)
    return fits
