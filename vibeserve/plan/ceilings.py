"""The best value of each metric that the roofline allows, at every declared load.

A bound that needs an unknown number is left out. Contexts and prompts are the shortest that are declared and, for
throughput, replies the longest: what is stated holds for every mix of lengths.
"""

from __future__ import annotations

from collections.abc import Iterator

from vibeserve.core.nouns import METRICS
from vibeserve.plan.demand import Demand, demand_of
from vibeserve.plan.floors import Bound, Floors
from vibeserve.plan.memory import GIB
from vibeserve.plan.nouns import COMPUTE, Ceiling
from vibeserve.spec import Modality, Spec

OFFERED = "offered load"

STREAMED_SPEECH = "streaming_asr"

Rate = tuple[float, str]
"""(per second, what bounds it)"""


def compute_ceilings(spec: Spec, floors: Floors) -> tuple[Ceiling, ...]:
    """Ceilings of a resolved spec. Where sizes are not declared there are none."""
    if not spec.model.num_parameters:
        return ()
    found = [_peak_memory(spec, floors)]
    for name in spec.workload.loads:
        if spec.model.modality is Modality.text:
            found += _text(spec, demand_of(spec, name), floors=floors)
        elif spec.model.modality is Modality.image and spec.model.image_head.num_tokens:
            found += _image(spec, demand_of(spec, name), floors=floors)
        elif spec.model.modality is Modality.speech and spec.workload.kind == STREAMED_SPEECH:
            found += _speech(spec, name, floors=floors)
    return tuple(found)


def _peak_memory(spec: Spec, floors: Floors) -> Ceiling:
    """Of one rank: the weights, and what one sequence of the shortest context keeps."""
    demand = min((demand_of(spec, name) for name in spec.workload.loads), key=lambda item: item.context_min)
    work, ranks = floors.work, floors.num_ranks
    kept = work.cache_bytes(demand, num_sequences=1) + work.state_bytes(num_sequences=1)
    num_bytes = spec.model.num_parameters * work.bytes_per_weight / ranks + kept / spec.parallelism.pipeline
    return _ceiling("peak_memory", num_bytes / GIB, bound_by="weights and one sequence")


def _text(spec: Spec, demand: Demand, *, floors: Floors) -> Iterator[Ceiling]:
    tokens = list(_rates(spec, demand, floors=floors, num_tokens=demand.output_max))
    requests = list(_rates(spec, demand, floors=floors, num_tokens=demand.output_min))
    if tokens:
        rate, why = min(tokens)
        yield _ceiling("output_throughput", rate * demand.output_max, bound_by=why, load=demand.load)
        rate, why = min(requests)
        yield _ceiling("request_throughput", rate, bound_by=why, load=demand.load)
    step = floors.decode_step(demand, num_sequences=1) if demand.is_one_token_a_pass else None
    latencies = {
        "ttft_p50": floors.ttft(demand),
        "tpot_p50": step,
        "e2el_p50": floors.whole_reply(demand, num_tokens=demand.output_min),
    }
    yield from _latencies(latencies, load=demand.load)


def _rates(spec: Spec, demand: Demand, *, floors: Floors, num_tokens: int) -> Iterator[Rate]:
    """Bounds of requests per second, over all replicas, where each gets `num_tokens`."""
    replicas, work = spec.parallelism.replicas, floors.work
    is_open = demand.arrivals_per_s > 0
    if is_open:
        yield demand.arrivals_per_s, OFFERED
    alone = floors.whole_reply(demand, num_tokens=num_tokens)
    if not is_open and alone is not None:
        # Little's law: so many are in flight, and none can be shorter
        yield demand.num_sequences / alone.seconds, alone.bound_by
    if floors.roof.tflops:
        yield replicas / floors.compute_s(_request_flops(demand, floors, num_tokens=num_tokens)), COMPUTE
    if not demand.is_one_token_a_pass:
        return
    if not is_open:
        step = floors.decode_step(demand, num_sequences=demand.num_sequences / replicas)
        if step is not None:
            yield demand.num_sequences / step.seconds / num_tokens, step.bound_by
    elif floors.has_bandwidth:
        # an open loop may batch any number: what remains is each sequence's own cache and state
        own = work.cache_bytes(demand, num_sequences=1) - work.cache_bytes(demand, num_sequences=0)
        moved = (own + 2 * work.state_bytes(num_sequences=1)) / spec.parallelism.pipeline
        if moved:
            rate = replicas * floors.roof.bandwidth_gb_s * 1e9 / moved
            yield rate / num_tokens, floors.roof.memory_bound


def _request_flops(demand: Demand, floors: Floors, *, num_tokens: int) -> float:
    if demand.is_one_token_a_pass:
        return floors.work.prefill_flops(demand) + (num_tokens - 1) * floors.work.decode_flops(demand)
    return floors.work.prefill_flops(demand, num_verified=num_tokens - 1)


def _image(spec: Spec, demand: Demand, *, floors: Floors) -> Iterator[Ceiling]:
    """Whole images: latency alone, and rate by the number in flight, the arrivals and the arithmetic."""
    alone = floors.image()
    rates: list[Rate] = [(demand.arrivals_per_s, OFFERED)] if demand.arrivals_per_s else []
    if alone is not None and not demand.arrivals_per_s:
        rates.append((demand.num_sequences / alone.seconds, alone.bound_by))
    if floors.roof.tflops and floors.work.image_flops():
        rates.append((spec.parallelism.replicas / floors.compute_s(floors.work.image_flops()), COMPUTE))
    if rates:
        rate, why = min(rates)
        yield _ceiling("request_throughput", rate, bound_by=why, load=demand.load)
    yield from _latencies({"e2el_p50": alone}, load=demand.load)


def _speech(spec: Spec, name: str, *, floors: Floors) -> Iterator[Ceiling]:
    """A partial transcript alone, and the sessions that the arithmetic of their encoders allows in real time."""
    yield from _latencies({"time_to_partial_p50": floors.partial(chunk_s=spec.workload.chunk_s)}, load=name)
    if floors.roof.tflops and floors.work.encoder_flops_per_s:
        sessions = spec.parallelism.replicas / floors.compute_s(floors.work.encoder_flops_per_s)
        yield _ceiling("realtime_sessions", sessions, bound_by=COMPUTE, load=name)


def _latencies(bounds: dict[str, Bound | None], *, load: str) -> Iterator[Ceiling]:
    for metric, bound in bounds.items():
        if bound is not None:
            yield _ceiling(metric, bound.seconds, bound_by=bound.bound_by, load=load)


def _ceiling(metric: str, value: float, *, bound_by: str, load: str = "") -> Ceiling:
    return Ceiling(metric=metric, unit=METRICS[metric].unit, value=value, bound_by=bound_by, load=load)
