"""The network's arithmetic by parts that keep nothing between calls. Rows of several sequences may stand in a batch."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional

from .interfaces import BlockConfig, ModelConfig
from .linear import Linear
from .parameters import Parameters
from .semantic import SemanticLayers

MAX_PERIOD, FREQUENCY_DIM = 10000.0, 256
"""of the time's sinusoids"""
NORM_EPS = 1e-6
"""of the norms that are no block's"""


def linear_of(weights: Mapping[str, Tensor], name: str, *, parameters: Parameters) -> Linear:
    return Linear(weights[f"{name}.weight"], weights.get(f"{name}.bias"), parameters=parameters)


def _pair(weights: Mapping[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    return weights[f"{name}.weight"].float(), weights[f"{name}.bias"].float()


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


class Ends:
    """What stands around the blocks: text, time and latents into rows; rows into velocities."""

    def __init__(self, weights: Mapping[str, Tensor], *, config: ModelConfig, parameters: Parameters) -> None:
        self._config = config
        self._embeddings = weights["showo.model.embed_tokens.weight"]
        self._patches = _pair(weights, "image_embedder_gen.proj")
        self._norms = {
            name: weights[f"{name}.weight"].float()
            for name in ("fusion_proj.0", "showo.model.norm", "diffusion_head_b.norm_final")
        }
        has_meaning = config.semantic.num_layers > 0
        self._semantic = SemanticLayers(weights, config=config, parameters=parameters) if has_meaning else None
        names = ["fusion_proj.1", "fusion_proj.3", "diffusion_head_b.linear"]
        names += [name for name in ("diff_proj.0", "diff_proj.2", "time_embed_proj") if f"{name}.weight" in weights]
        self._linears = {name: linear_of(weights, name, parameters=parameters) for name in names}
        # the time and what it modulates are few rows, whose rounding would be in every row: they stay in f32
        modulations = [f"diffusion_head_a.{number}" for number in range(config.head.num_layers)]
        self._modulations = [
            _pair(weights, f"{name}.adaLN_modulation.1") for name in (*modulations, "diffusion_head_b")
        ]
        self._time = [_pair(weights, f"time_embed.mlp.{number}") for number in (0, 2)]

    def text_rows(self, token_ids: list[int]) -> Tensor:
        """[num_rows, hidden], the begin tokens around the prompt included."""
        ids = [self._config.begin_token_id, *token_ids, self._config.begin_image_token_id]
        return self._embeddings[torch.tensor(ids)].float()

    def image_rows(self, latents: Tensor, conditions: Tensor) -> Tensor:
        """The time's row and the image's, [1 + num_patches, hidden]."""
        patches = functional.conv2d(latents[None], *self._patches, stride=self._config.patch_size)
        x = patches[0].flatten(1).T
        if self._semantic is not None:
            x = torch.cat((self._semantic(latents), x), dim=-1)
        x = rms_norm(x, self._norms["fusion_proj.0"], eps=NORM_EPS)
        x = self._linears["fusion_proj.3"](functional.gelu(self._linears["fusion_proj.1"](x)))
        projected = self._linears.get("time_embed_proj")
        return torch.cat((projected(conditions) if projected else conditions, x))

    def conditions(self, time: float) -> Tensor:
        """The time's embedding, [1, hidden of the head]."""
        first, second = self._time
        half = FREQUENCY_DIM // 2
        angles = time * torch.exp(-math.log(MAX_PERIOD) * torch.arange(half, dtype=torch.float32) / half)
        inner = functional.linear(torch.cat((angles.cos(), angles.sin()))[None], *first)
        return functional.linear(functional.silu(inner), *second)

    def modulations(self, conditions: Tensor) -> list[Tensor]:
        """Of every block of the head, [6, 1, hidden], and of the last layer, [2, 1, hidden]."""
        active = functional.silu(conditions)
        return [
            functional.linear(active, weight, bias).view(-1, 1, active.shape[-1]) for weight, bias in self._modulations
        ]

    def between(self, x: Tensor) -> Tensor:
        """From the body to the head."""
        x = rms_norm(x, self._norms["showo.model.norm"], eps=self._config.body.norm_eps)
        if "diff_proj.0" not in self._linears:
            return x
        return self._linears["diff_proj.2"](functional.gelu(self._linears["diff_proj.0"](x)))

    def velocity(self, rows: Tensor, modulation: Tensor, *, shape: torch.Size) -> Tensor:
        """Of the rows of time and image behind the head, [1 + num_patches, hidden] -> [channels, height, width]."""
        normed = rms_norm(rows[1:], self._norms["diffusion_head_b.norm_final"], eps=NORM_EPS)
        out = self._linears["diffusion_head_b.linear"](normed * (1 + modulation[1]) + modulation[0])
        patch, (channels, height, width) = self._config.patch_size, shape
        grid = out.view(height // patch, width // patch, patch, patch, channels)
        return grid.permute(4, 0, 2, 1, 3).reshape(channels, height, width)
