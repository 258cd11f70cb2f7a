"""The network of the Show-o2 shape in plain torch: a Qwen2.5-style body and a modulated head that predict a velocity.

A sequence is begin, prompt, begin of image, time, image. Text rows are causal and see nothing of the image. The time
row and the image's rows see all the text and each other. Only they are modulated by the time in the head. So the rows
of the text are the same at every step, and `prefix` computes them once; `tests/modalities/test_image_reference.py`
holds that this is what the whole sequence gives at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from vibeserve.modalities.image.semantic import semantic_rows

MAX_PERIOD = 10000.0
"""of the time's sinusoids (DiT)"""


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """Keys and values of the text's rows, by layer of body and head, each [1, num_kv_heads, num_rows, head_dim]."""

    kept: tuple[tuple[Tensor, Tensor], ...]
    num_rows: int


class FlowNetwork:
    """`tensors` by their names in the checkpoint, `config` its config.json. Computes in the tensors' own dtype."""

    def __init__(self, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
        self._tensors = tensors
        self._config = config
        body, head = config["llm_config"], config["diffusion_head_config"]
        self._layers = [
            Layer(tensors, f"showo.model.layers.{number}.", body) for number in range(body["num_hidden_layers"])
        ]
        self._head = [
            Layer(tensors, f"diffusion_head_a.{number}.", head) for number in range(config["num_diffusion_layers"])
        ]

    @torch.inference_mode()
    def prefix(self, token_ids: Sequence[int]) -> Prefix:
        """Of a prompt's tokens: with the begin tokens around them, causal."""
        ids = [self._config["bos_token_id"], *token_ids, self._config["boi_token_id"]]
        x = self._tensors["showo.model.embed_tokens.weight"][torch.tensor(ids)][None]
        kept: list[tuple[Tensor, Tensor]] = []
        for layer in self._layers:
            x = layer(x, first=0, kept=None, keep=kept, modulation=None)
        x = self._widened(self._normed(x))
        for layer in self._head:
            x = layer(x, first=0, kept=None, keep=kept, modulation=None)
        return Prefix(kept=tuple(kept), num_rows=len(ids))

    @torch.inference_mode()
    def velocity(self, prefix: Prefix, latents: Tensor, *, time: float) -> Tensor:
        """dx/dt at `latents` [channels, height, width], f32, of the same shape."""
        rows = self._embedded(latents)
        conditions = self._time_embedding(time)
        x = torch.cat((self._projected_time(conditions), rows))[None].to(rows.dtype)
        for number, layer in enumerate(self._layers):
            x = layer(x, first=prefix.num_rows, kept=prefix.kept[number], keep=None, modulation=None)
        x = self._widened(self._normed(x))
        active = functional.silu(conditions)
        for number, layer in enumerate(self._head, start=len(self._layers)):
            modulation = self._linear(f"diffusion_head_a.{number - len(self._layers)}.adaLN_modulation.1", active)
            x = layer(x, first=prefix.num_rows, kept=prefix.kept[number], keep=None, modulation=modulation.chunk(6, -1))
        shift, scale = self._linear("diffusion_head_b.adaLN_modulation.1", active).chunk(2, -1)
        normed = rms_norm(x, self._tensors["diffusion_head_b.norm_final.weight"], eps=1e-6)
        out = self._linear("diffusion_head_b.linear", normed * (1 + scale) + shift)[0, 1:]
        return self._unpatched(out.float(), height=latents.shape[1], width=latents.shape[2])

    def _embedded(self, latents: Tensor) -> Tensor:
        """Patches in rows of the body's width, [num_tokens, hidden_size]."""
        weight, bias = self._pair("image_embedder_gen.proj")
        patches = functional.conv2d(latents[None].to(weight.dtype), weight, bias, stride=self._config["patch_size"])
        x = patches[0].flatten(1).T
        if self._config["num_semantic_layers"]:
            x = torch.cat((semantic_rows(self._tensors, self._config, latents), x), dim=-1)
        x = rms_norm(x, self._tensors["fusion_proj.0.weight"], eps=1e-6)
        return self._linear("fusion_proj.3", functional.gelu(self._linear("fusion_proj.1", x)))

    def _time_embedding(self, time: float) -> Tensor:
        """[1, width of the head]"""
        half = self._tensors["time_embed.mlp.0.weight"].shape[1] // 2
        frequencies = torch.exp(-math.log(MAX_PERIOD) * torch.arange(half, dtype=torch.float32) / half)
        angles = time * frequencies
        given = torch.cat((angles.cos(), angles.sin()))[None].to(self._tensors["time_embed.mlp.0.weight"].dtype)
        return self._linear("time_embed.mlp.2", functional.silu(self._linear("time_embed.mlp.0", given)))

    def _projected_time(self, conditions: Tensor) -> Tensor:
        is_wider = "time_embed_proj.weight" in self._tensors
        return self._linear("time_embed_proj", conditions) if is_wider else conditions

    def _normed(self, x: Tensor) -> Tensor:
        return rms_norm(x, self._tensors["showo.model.norm.weight"], eps=self._config["llm_config"]["rms_norm_eps"])

    def _widened(self, x: Tensor) -> Tensor:
        if "diff_proj.0.weight" not in self._tensors:
            return x
        return self._linear("diff_proj.2", functional.gelu(self._linear("diff_proj.0", x)))

    def _unpatched(self, rows: Tensor, *, height: int, width: int) -> Tensor:
        patch, channels = self._config["patch_size"], self._config["image_latent_dim"]
        grid = rows.view(height // patch, width // patch, patch, patch, channels)
        return grid.permute(4, 0, 2, 1, 3).reshape(channels, height, width)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return functional.linear(x, *self._pair(name))

    def _pair(self, name: str) -> tuple[Tensor, Tensor]:
        return self._tensors[f"{name}.weight"], self._tensors[f"{name}.bias"]


class Layer:
    """One block of body or head. The head's has norms of queries and keys, and is modulated in the image's rows."""

    def __init__(self, tensors: Mapping[str, Tensor], name: str, sizes: Mapping[str, Any]) -> None:
        self._tensors, self._name, self._sizes = tensors, name, sizes
        self._frequencies = rope_frequencies(sizes)

    def __call__(
        self, x: Tensor, *, first: int, kept: tuple[Tensor, Tensor] | None, keep: list[tuple[Tensor, Tensor]] | None,
        modulation: Sequence[Tensor] | None,
    ) -> Tensor:  # fmt: skip
        """Rows `x` [batch, num_rows, hidden_size] at positions from `first` on. `kept`: keys and values before them,
        which all rows see with each other; without it the rows are causal. `keep` gets their own keys and values."""
        normed = self._norm("input_layernorm", x)
        if modulation is not None:
            normed = normed * (1 + modulation[1]) + modulation[0]
        attended = self._attended(normed, first=first, kept=kept, keep=keep)
        x = x + (attended if modulation is None else modulation[2] * attended)
        normed = self._norm("post_attention_layernorm", x)
        if modulation is not None:
            normed = normed * (1 + modulation[4]) + modulation[3]
        gate, up = self._linear("mlp.gate_proj", normed), self._linear("mlp.up_proj", normed)
        out = self._linear("mlp.down_proj", functional.silu(gate) * up)
        return x + (out if modulation is None else modulation[5] * out)

    def _attended(
        self, x: Tensor, *, first: int, kept: tuple[Tensor, Tensor] | None, keep: list[tuple[Tensor, Tensor]] | None
    ) -> Tensor:
        dim = self._sizes["head_dim"]
        q, k, v = (
            self._linear(f"self_attn.{part}_proj", x).view(*x.shape[:2], -1, dim).transpose(1, 2) for part in "qkv"
        )
        if f"{self._name}self_attn.q_norm.weight" in self._tensors:
            q, k = self._norm("self_attn.q_norm", q), self._norm("self_attn.k_norm", k)
        angles = torch.arange(first, first + x.shape[1], dtype=torch.float32)[:, None] * self._frequencies
        q, k = rotated(q, angles), rotated(k, angles)
        if keep is not None:
            keep.append((k, v))
        if kept is not None:
            k, v = torch.cat((kept[0], k), dim=2), torch.cat((kept[1], v), dim=2)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=kept is None, enable_gqa=True)
        return self._linear("self_attn.o_proj", out.transpose(1, 2).reshape(*x.shape[:2], -1))

    def _norm(self, name: str, x: Tensor) -> Tensor:
        return rms_norm(x, self._tensors[f"{self._name}{name}.weight"], eps=self._sizes["rms_norm_eps"])

    def _linear(self, name: str, x: Tensor) -> Tensor:
        name = f"{self._name}{name}"
        return functional.linear(x, self._tensors[f"{name}.weight"], self._tensors.get(f"{name}.bias"))


def rms_norm(x: Tensor, weight: Tensor, *, eps: float) -> Tensor:
    normed = x.float() * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + eps)
    return weight * normed.to(x.dtype)


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """`x` [..., num_rows, head_dim], `angles` [num_rows, head_dim / 2]: the two halves of a head rotate together."""
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def rope_frequencies(sizes: Mapping[str, Any]) -> Tensor:
    """Radians for each position, [head_dim / 2]; `rope_scaling` of type llama3 slows the long waves down."""
    dim = sizes["head_dim"]
    frequencies: Tensor = float(sizes["rope_theta"]) ** -(torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    scaling = sizes.get("rope_scaling")
    if not scaling:
        return frequencies
    length, low, high = (
        scaling[name] for name in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    )
    num_turns = length * frequencies / (2 * math.pi)
    share = ((num_turns - low) / (high - low)).clamp(0, 1)
    scaled: Tensor = frequencies * (share + (1 - share) / scaling["factor"])
    return scaled
