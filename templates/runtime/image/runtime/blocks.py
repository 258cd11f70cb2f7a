"""The transformer's blocks by parts that keep nothing between calls. Rows of several sequences may stand in a batch."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from .interfaces import BlockConfig
from .linear import Linear
from .parameters import Parameters


def linear_of(weights: Mapping[str, Tensor], name: str, *, parameters: Parameters) -> Linear:
    return Linear(weights[f"{name}.weight"], weights.get(f"{name}.bias"), parameters=parameters)


def rms_norm(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    return functional.rms_norm(x, (x.shape[-1],), weight, eps)


class Rotation:
    """Rotary embedding by position; long waves are slowed down where the configuration scales them (llama3)."""

    def __init__(self, config: BlockConfig) -> None:
        exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
        frequencies = config.rope_theta**-exponents
        scaling = config.rope_scaling
        if scaling:
            low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
            num_turns = scaling["original_max_position_embeddings"] * frequencies / (2 * math.pi)
            share = ((num_turns - low) / (high - low)).clamp(0, 1)
            frequencies = frequencies * (share + (1 - share) / scaling["factor"])
        self._frequencies = frequencies

    def __call__(self, x: Tensor, positions: Tensor) -> Tensor:
        """x [batch, num_heads, num_rows, head_dim]; `positions` [num_rows] or [batch, 1, num_rows]."""
        angles = positions[..., None].float() * self._frequencies
        cos, sin = angles.cos(), angles.sin()
        first, second = x.chunk(2, -1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Block:
    """One block of body or head but for its attention's reach, which is the caller's.

    `modulation` (the head's alone): shift, scale and gate of attention, then of the MLP, [6, num_rows or 1, hidden].
    """

    def __init__(
        self, weights: Mapping[str, Tensor], name: str, *, config: BlockConfig, parameters: Parameters
    ) -> None:
        self._config = config
        self._rotation = Rotation(config)
        self._norms = [
            weights[f"{name}{norm}.weight"].float() for norm in ("input_layernorm", "post_attention_layernorm")
        ]
        self._qk_norms = [
            weights[f"{name}self_attn.{part}_norm.weight"].float()
            for part in "qk" if f"{name}self_attn.{part}_norm.weight" in weights
        ]  # fmt: skip
        parts = [f"{name}self_attn.{part}_proj" for part in "qkv"]
        biases = [weights[f"{part}.bias"] for part in parts if f"{part}.bias" in weights]
        weight = torch.cat([weights[f"{part}.weight"] for part in parts])
        self._qkv = Linear(weight, torch.cat(biases) if biases else None, parameters=parameters)
        self._out = linear_of(weights, f"{name}self_attn.o_proj", parameters=parameters)
        gate_up = torch.cat([weights[f"{name}mlp.{part}_proj.weight"] for part in ("gate", "up")])
        self._gate_up = Linear(gate_up, parameters=parameters)
        self._down = linear_of(weights, f"{name}mlp.down_proj", parameters=parameters)

    def project(self, x: Tensor, positions: Tensor, modulation: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of rows x [batch, num_rows, hidden], each [batch, heads, num_rows, head_dim]."""
        normed = rms_norm(x, self._norms[0], eps=self._config.norm_eps)
        if modulation is not None:
            normed = normed * (1 + modulation[1]) + modulation[0]
        num_heads, num_kv = self._config.num_heads, self._config.num_kv_heads
        qkv = self._qkv(normed).view(*x.shape[:2], -1, self._config.head_dim).transpose(1, 2)
        q, k, v = qkv.split((num_heads, num_kv, num_kv), dim=1)
        if self._qk_norms:
            q, k = (rms_norm(each, norm, eps=self._config.norm_eps)
                    for each, norm in zip((q, k), self._qk_norms, strict=True))  # fmt: skip
        return self._rotation(q, positions), self._rotation(k, positions), v

    def finish(self, x: Tensor, attended: Tensor, modulation: Tensor | None = None) -> Tensor:
        """The block's output. `attended` [batch, num_heads, num_rows, head_dim]."""
        out = self._out(attended.transpose(1, 2).reshape(*x.shape[:2], -1))
        x = x + (out if modulation is None else modulation[2] * out)
        normed = rms_norm(x, self._norms[1], eps=self._config.norm_eps)
        if modulation is not None:
            normed = normed * (1 + modulation[4]) + modulation[3]
        gate, up = self._gate_up(normed).chunk(2, -1)
        out = self._down(functional.silu(gate) * up)
        return x + (out if modulation is None else modulation[5] * out)
