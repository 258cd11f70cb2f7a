"""Lower bounds of time from bytes moved and operations done (Williams et al., "Roofline", CACM 52(4), 2009)."""

from __future__ import annotations

from vibeserve.spec import Model

BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
"""per value of a dtype"""

SMALLEST_WEIGHT_BYTES = 0.5
"""bytes per weight under `precision: any`: four bits are the least that the accuracy gate has been seen to pass"""


def kv_bytes_per_token(model: Model) -> float:
    """Bytes of KV cache that one token occupies over all layers, in the declared dtype."""
    return 2 * model.num_layers * model.num_kv_heads * model.head_dim * BYTES[model.dtype]


def decode_step_floor_s(*, weight_bytes: float, kv_bytes: float, bandwidth_gb_s: float) -> float:
    """Shortest decode step: every weight is read once, and the KV cache of every sequence in the batch once."""
    return (weight_bytes + kv_bytes) / (bandwidth_gb_s * 1e9)


def prefill_floor_s(*, num_tokens: float, num_parameters: int, tflops: float) -> float:
    """Shortest prefill by arithmetic: two operations per parameter and token; attention's own are left out."""
    return 2.0 * num_parameters * num_tokens / (tflops * 1e12)
