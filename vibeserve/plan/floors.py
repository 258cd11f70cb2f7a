"""Shortest times of one replica: a decode step, a first token, an image, from the roofline of its devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vibeserve.hardware import all_reduce_floor_s, decode_step_floor_s
from vibeserve.hardware.footprint import BYTES
from vibeserve.hardware.roofline import ALL_REDUCES_PER_LAYER, compute_floor_s, read_floor_s
from vibeserve.plan.demand import Demand
from vibeserve.plan.memory import GIB
from vibeserve.plan.nouns import COMPUTE, DecodeFloor, PrefillFloor, Roof
from vibeserve.plan.work import Work
from vibeserve.spec import Precision, Spec

CACHE_RESIDENT_BYTES = 64 << 20
"""weights of a rank below this may stay in its caches, where the memory's bandwidth bounds nothing"""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """A shortest time and what sets it."""

    seconds: float
    bound_by: str


def tflops_of(spec: Spec) -> float:
    """Declared arithmetic rate of one device for the model's dtype, or the highest one where any precision may serve;
    0 = none."""
    hardware = spec.hardware
    if spec.evaluation.precision is Precision.any:
        return max(hardware.tflops_f32, hardware.tflops_bf16, hardware.tops_int8, hardware.tops_int4)
    return hardware.tflops_f32 if spec.model.dtype == "float32" else hardware.tflops_bf16


class Floors:
    """Floors of a resolved spec on devices under `roof`."""

    def __init__(self, spec: Spec, roof: Roof) -> None:
        self.work = Work(spec)
        self.roof = roof
        self._model = spec.model
        # the ranks of a CPU share its memory and cores: together they are bound as one would be
        self._tensor = 1 if spec.hardware.kind == "cpu" else spec.parallelism.tensor
        self._pipeline = spec.parallelism.pipeline
        self.num_ranks = self._tensor * self._pipeline

    @property
    def has_bandwidth(self) -> bool:
        """A known bandwidth bounds what a rank reads of its weights."""
        is_resident = self.work.weight_bytes / self.num_ranks < CACHE_RESIDENT_BYTES
        return bool(self.roof.bandwidth_gb_s) and not is_resident

    def all_reduce_s(self, num_sequences: float) -> float | None:
        """Of one pass with one token per sequence; 0 on one rank, None where the interconnect is not declared."""
        if self._tensor == 1:
            return 0.0
        if not self.roof.interconnect_gb_s:
            return None
        num_bytes = num_sequences * self._model.hidden_size * BYTES[self._model.dtype]
        once_s = all_reduce_floor_s(num_bytes, num_ranks=self._tensor, interconnect_gb_s=self.roof.interconnect_gb_s)
        return ALL_REDUCES_PER_LAYER * self._model.num_layers * once_s

    def micro_batch(self, num_sequences: float) -> float:
        """Sequences that pass a stage together: a pipeline works on as many micro-batches as it has stages."""
        return max(1.0, num_sequences / self._pipeline)

    def decode_step(self, demand: Demand, *, num_sequences: float) -> Bound | None:
        """Shortest time between two tokens of each of `num_sequences` on one replica; None where nothing bounds it.

        A token passes all stages of a pipeline, one after the other, with its micro-batch. Without a known
        interconnect the all-reduces are left out.
        """
        batch = self.micro_batch(num_sequences)
        longest = _longest(self._pass_bounds(demand, batch=batch))
        if longest is None:
            return None
        return Bound(seconds=longest.seconds + (self.all_reduce_s(batch) or 0.0), bound_by=longest.bound_by)

    def _pass_bounds(self, demand: Demand, *, batch: float) -> Iterator[Bound]:
        if self.has_bandwidth:
            seconds = decode_step_floor_s(
                weight_bytes=self.work.weight_bytes / self._tensor,
                kv_bytes=self.work.cache_bytes(demand, num_sequences=batch),
                state_bytes=self.work.state_bytes(num_sequences=batch),
                bandwidth_gb_s=self.roof.bandwidth_gb_s,
            )
            yield Bound(seconds=seconds, bound_by=self.roof.memory_bound)
        if self.roof.tflops:
            flops = batch * self.work.decode_flops(demand) / self._tensor
            yield Bound(seconds=compute_floor_s(flops, tflops=self.roof.tflops), bound_by=COMPUTE)

    def decode_floor(self, demand: Demand, *, num_sequences: float) -> DecodeFloor:
        """`decode_step` with its parts, per rank."""
        batch = self.micro_batch(num_sequences)
        step = self.decode_step(demand, num_sequences=num_sequences)
        return DecodeFloor(
            load=demand.load, num_sequences=num_sequences, weights_gib=self.work.weight_bytes / self.num_ranks / GIB,
            kv_gib=self.work.cache_bytes(demand, num_sequences=batch) / self._pipeline / GIB,
            state_gib=2 * self.work.state_bytes(num_sequences=batch) / self._pipeline / GIB,
            all_reduce_s=self.all_reduce_s(batch), step_s=step.seconds if step else None,
            bound_by=step.bound_by if step else "",
        )  # fmt: skip

    def prefill(self, demand: Demand) -> PrefillFloor:
        """A first token of a request that is alone on its replica; all-reduces are left out."""
        compute_s = bandwidth_s = None
        if self.roof.tflops:
            compute_s = self.compute_s(self.work.prefill_flops(demand))
        if self.has_bandwidth:
            num_bytes = self.work.weight_bytes / self._tensor + self.work.cache_bytes(demand, num_sequences=0)
            bandwidth_s = read_floor_s(num_bytes, bandwidth_gb_s=self.roof.bandwidth_gb_s)
        return PrefillFloor(
            num_tokens=demand.prompt_min, num_cached_tokens=demand.num_prefix_tokens, compute_s=compute_s,
            bandwidth_s=bandwidth_s,
        )  # fmt: skip

    def ttft(self, demand: Demand) -> Bound | None:
        """The longer of a prefill's two floors."""
        return self._longer(self.prefill(demand))

    def whole_reply(self, demand: Demand, *, num_tokens: int) -> Bound | None:
        """Shortest time to a whole reply of `num_tokens` for a request alone: step by step after the first token, or,
        where the answer is foretold or forced, one pass over the prompt and all of it."""
        first = self.ttft(demand)
        if demand.is_one_token_a_pass:
            step = self.decode_step(demand, num_sequences=1)
            if first is None or step is None:
                return None
            rest_s = (num_tokens - 1) * step.seconds
            return Bound(
                seconds=first.seconds + rest_s, bound_by=max(first, Bound(seconds=rest_s, bound_by=step.bound_by),
                key=lambda bound: bound.seconds).bound_by,
            )  # fmt: skip
        if not self.roof.tflops:
            return first
        flops = self.work.prefill_flops(demand, num_verified=num_tokens - 1)
        return _longest([*([first] if first else []), Bound(seconds=self.compute_s(flops), bound_by=COMPUTE)])

    def image(self) -> Bound | None:
        """Shortest time to one image of a request alone: its passes follow each other and each reads the blocks."""
        bounds = []
        num_bytes = self.work.num_image_parameters * self.work.bytes_per_weight
        if self.roof.bandwidth_gb_s and num_bytes / self.num_ranks >= CACHE_RESIDENT_BYTES:
            once_s = read_floor_s(num_bytes / self._tensor, bandwidth_gb_s=self.roof.bandwidth_gb_s)
            bounds.append(Bound(seconds=self.work.num_image_passes * once_s, bound_by=self.roof.memory_bound))
        if self.roof.tflops and self.work.image_flops():
            bounds.append(Bound(seconds=self.compute_s(self.work.image_flops()), bound_by=COMPUTE))
        return _longest(bounds)

    def partial(self, *, chunk_s: float) -> Bound | None:
        """Shortest time from a chunk of audio to a partial transcript: the encoder over the chunk's own frames, or all
        weights read once for it and one token."""
        bounds = []
        if self.has_bandwidth:
            once_s = read_floor_s(self.work.weight_bytes / self._tensor, bandwidth_gb_s=self.roof.bandwidth_gb_s)
            bounds.append(Bound(seconds=once_s, bound_by=self.roof.memory_bound))
        if self.roof.tflops and self.work.encoder_flops_per_s:
            seconds = self.compute_s(self.work.encoder_flops_per_s * chunk_s)
            bounds.append(Bound(seconds=seconds, bound_by=COMPUTE))
        return _longest(bounds)

    def compute_s(self, flops: float) -> float:
        """Of operations that all ranks of a replica share."""
        return compute_floor_s(flops / self.num_ranks, tflops=self.roof.tflops)

    def _longer(self, floor: PrefillFloor) -> Bound | None:
        found = [(floor.compute_s, COMPUTE), (floor.bandwidth_s, self.roof.memory_bound)]
        return _longest(Bound(seconds=seconds, bound_by=why) for seconds, why in found if seconds is not None)


def _longest(bounds: Iterator[Bound] | list[Bound]) -> Bound | None:
    return max(bounds, key=lambda bound: bound.seconds, default=None)
