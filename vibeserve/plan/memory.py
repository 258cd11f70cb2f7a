"""Memory of one rank at the declared loads."""

from __future__ import annotations

import math
from dataclasses import replace

from vibeserve.hardware import Sharding, kv_bytes_per_token, state_bytes_per_sequence, weight_bytes
from vibeserve.hardware.footprint import BYTES
from vibeserve.plan.demand import Demand, demand_of
from vibeserve.plan.nouns import MemoryEstimate
from vibeserve.spec import Model, Parallelism, Spec, SpeechEncoder

GIB = 1 << 30

PROCESS_GIB = 0.5
"""a Python process with torch loaded and one HTTP server; resident size, measured 0.3 to 0.45. A device's context and
its libraries are of the same size"""

PREFILL_CHUNK_TOKENS = 8192
"""tokens of one prefill pass: vLLM's documentation asks for so many where throughput counts; longer prompts are cut"""

ACTIVATION_BYTES = 4
"""activations and logits in f32, the widest that a runtime would keep"""


def sharding_of(parallelism: Parallelism) -> Sharding:
    """Over how many ranks one replica's model is spread."""
    return Sharding(tensor=parallelism.tensor, pipeline=parallelism.pipeline)


def estimate_memory(
    spec: Spec, *, parallelism: Parallelism, capacity_gib: float | None, num_sequences: int = 0
) -> MemoryEstimate:
    """Weights, caches, states and workspace of one rank under the load that needs most.

    `num_sequences` > 0 stands for the declared number in flight, over all replicas. Raises nothing: `fits` tells.
    """
    demands = [demand_of(spec, name) for name in spec.workload.loads]
    if num_sequences:
        demands = [replace(demand, num_sequences=num_sequences) for demand in demands]
    estimates = [_of_load(spec, demand, parallelism=parallelism, capacity_gib=capacity_gib) for demand in demands]
    return max(estimates, key=lambda estimate: estimate.total_gib)


def _of_load(spec: Spec, demand: Demand, *, parallelism: Parallelism, capacity_gib: float | None) -> MemoryEstimate:
    model, sharding = spec.model, sharding_of(parallelism)
    sequences = math.ceil(demand.num_sequences / parallelism.replicas)
    per_token = kv_bytes_per_token(model, sharding=sharding)
    prefixes = demand.num_prefixes * demand.num_prefix_tokens * per_token / GIB
    own = sequences * demand.tokens_per_sequence * per_token / GIB
    # a shared prefix is kept as a snapshot of every state at its end
    states = (sequences + demand.num_prefixes) * state_bytes_per_sequence(model, sharding=sharding)
    states += sequences * encoder_state_bytes(model.speech_encoder, model=model)
    weights = weight_bytes(model, sharding=sharding) / GIB
    workspace = PROCESS_GIB + _activation_bytes(model, demand, sequences=sequences, sharding=sharding) / GIB
    return MemoryEstimate(
        weights_gib=weights, kv_cache_gib=prefixes + own, state_gib=states / GIB, workspace_gib=workspace,
        total_gib=weights + prefixes + own + states / GIB + workspace, capacity_gib=capacity_gib,
        prefix_kv_gib=prefixes, load=demand.load, num_sequences=sequences,
    )  # fmt: skip


def encoder_state_bytes(encoder: SpeechEncoder, *, model: Model) -> float:
    """Keys and values that a streaming encoder's layers keep of the frames in their window, for one recording."""
    window = encoder.left_frames + encoder.lookahead_frames
    return 2 * encoder.num_layers * encoder.num_heads * encoder.head_dim * window * BYTES[model.dtype]


def _activation_bytes(model: Model, demand: Demand, *, sequences: int, sharding: Sharding) -> float:
    """Of one prefill pass: per token the residual, its normed copy and the wider of MLP (gate and up) and projections
    (queries, keys, values), and the logits of every sequence. Attention's scores are never whole (FlashAttention,
    arXiv:2205.14135)."""
    head = model.image_head
    tokens = min(PREFILL_CHUNK_TOKENS, max(demand.longest_prompt, head.num_tokens))
    mlp = 2 * (model.intermediate_size or 4 * model.hidden_size)
    projections = (model.num_heads + 2 * model.num_kv_heads) * model.head_dim
    per_token = 2 * model.hidden_size + max(mlp, projections) / sharding.tensor
    return ACTIVATION_BYTES * (tokens * per_token + sequences * model.vocab_size)
