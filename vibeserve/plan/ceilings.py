"""Ceilings per metric from the roofline, and goals that lie beyond them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vibeserve.core.nouns import METRICS, Direction
from vibeserve.errors import SpecError
from vibeserve.hardware import decode_step_floor_s, kv_bytes_per_token, prefill_floor_s
from vibeserve.hardware.roofline import BYTES, SMALLEST_WEIGHT_BYTES
from vibeserve.plan.memory import GIB, num_in_flight
from vibeserve.plan.nouns import Ceiling
from vibeserve.spec import Goal, Precision, Spec

CACHE_RESIDENT_BYTES = 64 << 20
"""weights below this may stay in the caches, where the memory's bandwidth bounds nothing"""

MEASURED = "measured bandwidth"

MEASURED_SLACK = 2.0
"""a measured bandwidth refuses a goal only beyond this factor: quiet hosts drift by up to two within an hour"""


@dataclass(frozen=True, kw_only=True)
class Bandwidth:
    """Read bandwidth of the engine's cores or devices together; `gb_s` 0 = unknown."""

    gb_s: float
    is_measured: bool

    @property
    def bound_by(self) -> str:
        return MEASURED if self.is_measured else "bandwidth"


def weight_bytes(spec: Spec) -> float:
    """Least bytes of weights that one decode step reads."""
    if spec.evaluation.precision is Precision.any:
        return spec.model.num_parameters * SMALLEST_WEIGHT_BYTES
    return spec.model.num_parameters * BYTES[spec.model.dtype]


def compute_ceilings(spec: Spec, *, bandwidth: Bandwidth) -> tuple[Ceiling, ...]:
    """Ceilings at every declared load. Bounds that need an unknown number are left out."""
    if not spec.model.num_parameters:
        return ()
    ceilings = [_ceiling("peak_memory", weight_bytes(spec) / GIB, bound_by="weights")]
    for name in spec.workload.loads:
        ceilings += _decode(spec, name, bandwidth=bandwidth)
    tflops = tflops_of(spec)
    if tflops:
        shortest = prefill_floor_s(
            num_tokens=spec.workload.prompt_tokens_min, num_parameters=spec.model.num_parameters, tflops=tflops
        )
        ceilings.append(_ceiling("ttft_p50", shortest, bound_by="compute"))
    return tuple(ceilings)


def tflops_of(spec: Spec) -> float:
    """Declared arithmetic rate for the model's dtype, or the highest one where any precision may serve; 0 = none."""
    hardware = spec.hardware
    if spec.evaluation.precision is Precision.any:
        return max(hardware.tflops_f32, hardware.tflops_bf16, hardware.tops_int8) * hardware.count
    return (hardware.tflops_f32 if spec.model.dtype == "float32" else hardware.tflops_bf16) * hardware.count


def _decode(spec: Spec, load: str, *, bandwidth: Bandwidth) -> Iterator[Ceiling]:
    read = weight_bytes(spec)
    if not bandwidth.gb_s or read < CACHE_RESIDENT_BYTES:
        return
    batch = num_in_flight(spec.workload.loads[load], spec.workload)
    # the shortest contexts: what is stated must hold for every mix of lengths
    kv_bytes = batch * spec.workload.prompt_tokens_min * kv_bytes_per_token(spec.model)
    if spec.evaluation.precision is Precision.any:
        kv_bytes = 0.0
    step_s = decode_step_floor_s(weight_bytes=read, kv_bytes=kv_bytes, bandwidth_gb_s=bandwidth.gb_s)
    alone_s = decode_step_floor_s(weight_bytes=read, kv_bytes=kv_bytes / batch, bandwidth_gb_s=bandwidth.gb_s)
    throughput, bound_by = batch / step_s, bandwidth.bound_by
    tflops = tflops_of(spec)
    if tflops and tflops * 1e12 / (2 * spec.model.num_parameters) < throughput:
        throughput, bound_by = tflops * 1e12 / (2 * spec.model.num_parameters), "compute"
    yield _ceiling("output_throughput", throughput, bound_by=bound_by, load=load)
    yield _ceiling("tpot_p50", alone_s, bound_by=bandwidth.bound_by, load=load)
    yield _ceiling("e2el_p50", alone_s * spec.workload.output_tokens_min, bound_by=bandwidth.bound_by, load=load)


def _ceiling(metric: str, value: float, *, bound_by: str, load: str = "") -> Ceiling:
    return Ceiling(metric=metric, unit=METRICS[metric].unit, value=value, bound_by=bound_by, load=load)


def refuse_unreachable(spec: Spec, ceilings: tuple[Ceiling, ...]) -> None:
    """SpecError "unreachable: floor N" for every absolute goal beyond its ceiling. Ratios have no ceiling here."""
    problems = []
    for index, goal in enumerate(spec.goals):
        wanted = _wanted(goal)
        load = goal.load or spec.workload.headline_load
        for ceiling in ceilings:
            if wanted is None or ceiling.metric != _bounded(goal.metric) or ceiling.load not in ("", load):
                continue
            slack = MEASURED_SLACK if ceiling.bound_by == MEASURED else 1.0
            metric = METRICS[goal.metric]
            if metric.ratio(wanted, against=ceiling.value) > slack:
                edge = "floor" if metric.direction is Direction.MIN else "ceiling"
                problems.append(
                    f"goals[{index}]: {goal.metric} {wanted:.4g} {metric.unit} is unreachable: "
                    f"{edge} {ceiling.value:.4g} {metric.unit} ({ceiling.bound_by}, load {load})"
                )
    if problems:
        hint = "weaken the goal, or declare other hardware"
        raise SpecError("a goal lies beyond its roofline", problems=problems, hint=hint)


def _wanted(goal: Goal) -> float | None:
    """An absolute goal's value in the metric's own unit."""
    if goal.max_ms is not None:
        return goal.max_ms / 1000
    return goal.max_gib if goal.max_gib is not None else goal.min_per_s


def _bounded(metric: str) -> str:
    """A p99 is no better than its p50, so the p50's floor holds for it."""
    return metric.replace("_p99", "_p50")
