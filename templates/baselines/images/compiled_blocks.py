"""A block as functions of tensors: one compilation serves every block of one size. Part of a baseline's workspace."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .blocks import Block, Rotation

Weights = tuple[Tensor | None, ...]


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return functional.linear(x.to(weight.dtype), weight, bias).float()


def project(
    x: Tensor, cos: Tensor, sin: Tensor, modulation: Tensor | None, weights: Weights, heads: tuple[int, int], eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Rotated queries and keys, and values, [batch, heads, num_rows, head_dim]."""
    norm, _, qkv, bias, _, _, _, q_norm, k_norm = weights
    rows = functional.rms_norm(x, (x.shape[-1],), norm, eps)
    if modulation is not None:
        rows = rows * (1 + modulation[1]) + modulation[0]
    given = linear(rows, qkv, bias).view(x.shape[0], x.shape[1], heads[0] + 2 * heads[1], -1).transpose(1, 2)
    q, k, v = given.split((heads[0], heads[1], heads[1]), dim=1)
    if q_norm is not None:
        q = functional.rms_norm(q, (q.shape[-1],), q_norm, eps)
        k = functional.rms_norm(k, (k.shape[-1],), k_norm, eps)
    return turned(q, cos, sin), turned(k, cos, sin), v


def finish(x: Tensor, attended: Tensor, modulation: Tensor | None, weights: Weights, eps: float) -> Tensor:
    """The block's output."""
    _, norm, _, _, out, gate_up, down, _, _ = weights
    added = linear(attended.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1), out)
    x = x + (added if modulation is None else modulation[2] * added)
    rows = functional.rms_norm(x, (x.shape[-1],), norm, eps)
    if modulation is not None:
        rows = rows * (1 + modulation[4]) + modulation[3]
    gate, up = linear(rows, gate_up).chunk(2, -1)
    added = linear(functional.silu(gate) * up, down)
    return x + (added if modulation is None else modulation[5] * added)


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def weights_of(block: Block) -> Weights:
    """In the order of `project` and `finish`."""
    q_norm, k_norm = block._qk_norms or (None, None)
    linears = (block._out.weight, block._gate_up.weight, block._down.weight)
    return (*block._norms, block._qkv.weight, block._qkv.bias, *linears, q_norm, k_norm)


def angles(rotation: Rotation, positions: Tensor) -> tuple[Tensor, Tensor]:
    turns = positions[..., None].float() * rotation._frequencies
    return turns.cos(), turns.sin()
