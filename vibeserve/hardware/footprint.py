"""Bytes that a model keeps on one rank: weights, KV cache, recurrent state.

A rank is one device of a replica. Tensor parallelism splits every matrix and the heads, pipeline parallelism the
layers (Shoeybi et al., "Megatron-LM", arXiv:1909.08053; Narayanan et al., arXiv:2104.04473).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from vibeserve.spec import LinearState, Model

BYTES = {"float32": 4.0, "bfloat16": 2.0, "float16": 2.0}
"""per value of a dtype"""

SMALLEST_WEIGHT_BYTES = 0.5
"""bytes per weight under `precision: any`: four bits are the least that the accuracy gate has been seen to pass"""


@dataclass(frozen=True, kw_only=True)
class Sharding:
    """Over how many ranks one copy of a model is spread: `tensor` within each layer, `pipeline` by layers."""

    tensor: int = 1
    pipeline: int = 1


WHOLE = Sharding()
"""one rank holds everything"""


def bytes_per_weight(model: Model) -> float:
    """Of the declared checkpoint: its stored bits where it is quantised, else its dtype's size."""
    return model.weight_bits / 8 if model.weight_bits else BYTES[model.dtype]


def weight_bytes(model: Model, *, sharding: Sharding = WHOLE) -> float:
    """Bytes of weights on one rank, split evenly."""
    return model.num_parameters * bytes_per_weight(model) / (sharding.tensor * sharding.pipeline)


def num_attention_layers(model: Model) -> int:
    """Layers with a KV cache."""
    return model.num_attention_layers or max(0, model.num_layers - model.linear_state.num_layers)


def kv_bytes_per_token(model: Model, *, sharding: Sharding = WHOLE) -> float:
    """Bytes of KV cache that one token occupies on one rank, in the declared dtype.

    A key and a value per layer and KV head (Pope et al., "Efficiently Scaling Transformer Inference", 2022,
    arXiv:2211.05102). With more ranks than KV heads each rank keeps a whole one: heads are replicated, never split.
    """
    layers = math.ceil(num_attention_layers(model) / sharding.pipeline)
    heads = math.ceil(model.num_kv_heads / sharding.tensor)
    return 2 * layers * heads * model.head_dim * BYTES[model.dtype]


def state_bytes_per_sequence(model: Model, *, sharding: Sharding = WHOLE) -> float:
    """Bytes of recurrent state that one sequence keeps on one rank, whatever its length.

    Per layer the matrix `[value heads, key head dim, value head dim]` in the state's dtype (Yang et al., "Gated Delta
    Networks", arXiv:2412.06464; for Mamba2 `[heads, state size, head dim]`, arXiv:2405.21060), and the last
    `conv_kernel - 1` inputs of the causal convolution in the model's dtype.
    """
    state = model.linear_state
    layers = math.ceil(state.num_layers / sharding.pipeline)
    heads = math.ceil(state.num_value_heads / sharding.tensor)
    matrix = heads * state.key_head_dim * state.value_head_dim * BYTES[state.dtype]
    window = max(0, state.conv_kernel - 1) * conv_channels(state) / sharding.tensor * BYTES[model.dtype]
    return layers * (matrix + window)


def conv_channels(state: LinearState) -> int:
    """Channels of the causal convolution: declared, or queries and keys of the key heads and values of the value heads
    (for Mamba2, B and C of the groups and x of the heads: the same sum)."""
    own = 2 * state.num_key_heads * state.key_head_dim + state.num_value_heads * state.value_head_dim
    return state.conv_channels or own
