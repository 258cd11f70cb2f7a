"""Memory of one server at the declared loads."""

from __future__ import annotations

import math

from vibeserve.errors import SpecError
from vibeserve.hardware import kv_bytes_per_token
from vibeserve.hardware.roofline import BYTES
from vibeserve.plan.nouns import MemoryEstimate
from vibeserve.spec import Load, Spec, Workload

GIB = 1 << 30

PROCESS_GIB = 0.5
"""a Python process with torch loaded and one HTTP server; resident size, measured 0.3 to 0.45"""


def num_in_flight(load: Load, workload: Workload) -> int:
    """Requests in flight at once: the concurrency, or Little's law with the slowest admissible latency of an SLO."""
    if load.concurrency:
        return load.concurrency
    latency_s = workload.slo.ttft_s + workload.slo.tpot_s * workload.output_tokens_max
    return max(1, math.ceil(load.rate_per_s * latency_s))


def estimate_memory(spec: Spec, *, capacity_gib: float) -> MemoryEstimate:
    """Weights in the declared dtype, KV cache of the largest load at full length, and a workspace.

    Raises SpecError when one server does not fit `capacity_gib`.
    """
    model, workload = spec.model, spec.workload
    most = max(num_in_flight(load, workload) for load in workload.loads.values())
    tokens = most * (workload.prompt_tokens_max + workload.output_tokens_max)
    weights = model.num_parameters * BYTES[model.dtype] / GIB
    kv_cache = tokens * kv_bytes_per_token(model) / GIB
    # activations of one prefill in f32 (hidden state, its copy, the widest MLP at up to four times), and the logits
    activations = 4 * (6 * workload.prompt_tokens_max * model.hidden_size + most * model.vocab_size) / GIB
    workspace = PROCESS_GIB + activations
    total = weights + kv_cache + workspace
    parts = f"weights {weights:.1f}, KV cache {kv_cache:.1f} at {most} requests, workspace {workspace:.1f} GiB"
    if total > capacity_gib:
        raise SpecError(
            f"the model does not fit: one server needs {total:.1f} GiB, capacity is {capacity_gib:.1f} GiB",
            problems=[parts],
            hint="a smaller model, fewer requests in flight, shorter lengths, or another hardware",
        )
    return MemoryEstimate(
        weights_gib=weights,
        kv_cache_gib=kv_cache,
        state_gib=0.0,
        workspace_gib=workspace,
        total_gib=total,
        capacity_gib=capacity_gib,
    )
