"""Lower bounds of time from bytes moved and operations done.

Williams, Waterman, Patterson: "Roofline: an insightful visual performance model for multicore architectures", CACM
52(4), 2009. Applied to transformers as in Pope et al., "Efficiently Scaling Transformer Inference", 2022,
arXiv:2211.05102. `docs/feasibility.md` works the formulas by hand.
"""

from __future__ import annotations

from vibeserve.hardware.footprint import num_attention_layers
from vibeserve.spec import Model

ALL_REDUCES_PER_LAYER = 2
"""after attention and after the MLP (Shoeybi et al., "Megatron-LM", arXiv:1909.08053, figure 4)"""


def read_floor_s(num_bytes: float, *, bandwidth_gb_s: float) -> float:
    """Shortest time to read `num_bytes`."""
    return num_bytes / (bandwidth_gb_s * 1e9)


def compute_floor_s(flops: float, *, tflops: float) -> float:
    """Shortest time for so many operations."""
    return flops / (tflops * 1e12)


def decode_step_floor_s(
    *, weight_bytes: float, kv_bytes: float, bandwidth_gb_s: float, state_bytes: float = 0.0
) -> float:
    """Shortest decode step of a batch: every weight is read once, the KV cache of every sequence once; `state_bytes`,
    the recurrent states of all sequences, are read and written."""
    return read_floor_s(weight_bytes + kv_bytes + 2 * state_bytes, bandwidth_gb_s=bandwidth_gb_s)


def forward_flops(
    *, num_tokens: float, num_parameters: float, num_outputs: float = 0.0, num_head_parameters: float = 0.0
) -> float:
    """Operations of the matrices: two per parameter and token (Kaplan et al., arXiv:2001.08361, section 2.1). The
    output matrix counts apart, for the `num_outputs` positions whose logits are needed."""
    return 2.0 * (num_parameters * num_tokens + num_head_parameters * num_outputs)


def attention_flops(model: Model, *, num_new: float, num_cached: float = 0.0) -> float:
    """Operations of attention itself for `num_new` tokens behind `num_cached`: scores and weighted values, two
    operations for every query head, dimension and pair of positions that the causal mask leaves."""
    pairs = num_new * num_cached + num_new * (num_new + 1) / 2
    return 4.0 * num_attention_layers(model) * model.num_heads * model.head_dim * pairs


def all_reduce_floor_s(num_bytes: float, *, num_ranks: int, interconnect_gb_s: float) -> float:
    """Shortest ring all-reduce of `num_bytes`: each rank sends 2 (n - 1) / n of them (Patarasuk and Yuan, "Bandwidth
    optimal all-reduce algorithms for clusters of workstations", JPDC 69(2), 2009). Latency is left out."""
    return 2 * (num_ranks - 1) / num_ranks * num_bytes / (interconnect_gb_s * 1e9)


def block_parameters(
    *,
    num_layers: int,
    hidden_size: int,
    intermediate_size: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    num_mlp_matrices: int = 3,
) -> int:
    """Parameters of the matrices of `num_layers` transformer blocks: q and o, k and v, and those of the MLP, three of a
    gated one."""
    attention = 2 * hidden_size * head_dim * (num_heads + num_kv_heads)
    return num_layers * (attention + num_mlp_matrices * hidden_size * intermediate_size)
