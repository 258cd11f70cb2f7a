"""The gated delta rule and the short convolution before it, on plain tensors (Yang et al. 2024, Gated DeltaNet).

A state maps keys to values. Each token lets it fade, reads what it holds under the token's key, and moves that a step
of size beta towards the token's value; the output is what the new state holds under the query:

    S <- exp(decay) S;   S <- S + k (beta (v - S^T k))^T;   o = S^T q

Queries and keys are normed to length 1, queries scaled by key_head_dim ** -0.5.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .hybrid import HybridConfig

NORM_EPS = 1e-6
"""added to the squared length of queries and keys"""


def convolve(inputs: Tensor, kernel: Tensor) -> Tensor:
    """Causal convolution per channel and SiLU: f32 [.., conv_kernel - 1 + n, conv_dim] -> [.., n, conv_dim]."""
    num_rows = inputs.shape[-2] - len(kernel) + 1
    total = inputs[..., :num_rows, :] * kernel[0]
    for offset in range(1, len(kernel)):
        total.addcmul_(inputs[..., offset : offset + num_rows, :], kernel[offset])
    return functional.silu(total)


def split_heads(convolved: Tensor, config: HybridConfig) -> tuple[Tensor, Tensor, Tensor]:
    """f32 [.., conv_dim] -> query and key [.., value heads, key_head_dim], value [.., value heads, value_head_dim].

    Each key head serves as many value heads in a row as there are more of these.
    """
    key_dim = config.linear_key_dim
    query, key, value = convolved.split_with_sizes([key_dim, key_dim, config.linear_value_dim], dim=-1)
    query, key = (torch.unflatten(x, -1, (config.linear_num_key_heads, -1)) for x in (query, key))
    query, key = unit(query) * config.linear_key_head_dim**-0.5, unit(key)
    num_served = config.linear_num_value_heads // config.linear_num_key_heads
    if num_served > 1:
        query, key = (x.repeat_interleave(num_served, dim=-2) for x in (query, key))
    return query, key, torch.unflatten(value, -1, (config.linear_num_value_heads, -1))


def unit(x: Tensor) -> Tensor:
    """Vectors of the last dimension, scaled to length 1."""
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + NORM_EPS)


def step(state: Tensor, query: Tensor, key: Tensor, value: Tensor, *, decay: Tensor, beta: Tensor) -> Tensor:
    """One token of each sequence; `state` f32 [.., key_head_dim, value_head_dim] is updated in place.

    `query` and `key` [.., key_head_dim], `value` [.., value_head_dim], `decay` and `beta` [..] -> [.., value_head_dim].
    """
    state *= decay.exp()[..., None, None]
    held = (key.unsqueeze(-2) @ state).squeeze(-2)
    change = (value - held) * beta.unsqueeze(-1)
    state += key.unsqueeze(-1) * change.unsqueeze(-2)
    return (query.unsqueeze(-2) @ state).squeeze(-2)
