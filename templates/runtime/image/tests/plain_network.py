"""The network again, written straight from its definition: whole sequences, one head at a time, no shared code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def plain_velocity(
    weights: Mapping[str, Tensor], config: Mapping[str, Any], token_ids: Sequence[int], latents: Tensor, *, time: float
) -> Tensor:
    """dx/dt, [channels, height, width]; `config` is config.json."""
    net = _Plain({name: tensor.double() for name, tensor in weights.items()}, config)
    return net.velocity(token_ids, latents.double(), time=time).float()


class _Plain:
    def __init__(self, weights: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
        self.w, self.config = weights, config

    def velocity(self, token_ids: Sequence[int], latents: Tensor, *, time: float) -> Tensor:
        config, patch = self.config, self.config["patch_size"]
        ids = [config["bos_token_id"], *token_ids, config["boi_token_id"]]
        text = self.w["showo.model.embed_tokens.weight"][torch.tensor(ids)]
        angles = [time * 10000.0 ** (-n / 128) for n in range(128)]
        given = torch.tensor([math.cos(a) for a in angles] + [math.sin(a) for a in angles], dtype=torch.float64)
        conditions = self.affine("time_embed.mlp.2", silu(self.affine("time_embed.mlp.0", given[None])))
        image = self.patches("image_embedder_gen", latents)
        if config["num_semantic_layers"]:
            image = torch.cat((self.meaning(latents), image), -1)
        image = self.norm("fusion_proj.0", image, 1e-6)
        image = self.affine("fusion_proj.3", gelu(self.affine("fusion_proj.1", image)))
        has_projection = "time_embed_proj.weight" in self.w
        x = torch.cat((text, self.affine("time_embed_proj", conditions) if has_projection else conditions, image))
        for number in range(config["llm_config"]["num_hidden_layers"]):
            x = self.block(f"showo.model.layers.{number}.", x, config["llm_config"], len(ids), None)
        x = self.norm("showo.model.norm", x, config["llm_config"]["rms_norm_eps"])
        if "diff_proj.0.weight" in self.w:
            x = self.affine("diff_proj.2", gelu(self.affine("diff_proj.0", x)))
        for number in range(config["num_diffusion_layers"]):
            x = self.block(f"diffusion_head_a.{number}.", x, config["diffusion_head_config"], len(ids), conditions)
        shift, scale = self.affine("diffusion_head_b.adaLN_modulation.1", silu(conditions)).chunk(2, -1)
        rows = self.norm("diffusion_head_b.norm_final", x[len(ids) + 1 :], 1e-6) * (1 + scale) + shift
        rows = self.affine("diffusion_head_b.linear", rows)
        channels, _, width = latents.shape
        out = torch.zeros_like(latents)
        for place, row in enumerate(rows):
            top, left = divmod(place, width // patch)
            piece = row.view(patch, patch, channels).permute(2, 0, 1)
            out[:, top * patch : (top + 1) * patch, left * patch : (left + 1) * patch] = piece
        return out

    def patches(self, name: str, latents: Tensor) -> Tensor:
        patch = self.config["patch_size"]
        columns = latents.unfold(1, patch, patch).unfold(2, patch, patch).permute(1, 2, 0, 3, 4)
        kernel = self.w[f"{name}.proj.weight"].flatten(1)
        return columns.flatten(2).flatten(0, 1) @ kernel.T + self.w[f"{name}.proj.bias"]

    def meaning(self, latents: Tensor) -> Tensor:
        sizes = self.config["semantic_config"]
        x = self.patches("image_embedder_und", latents) + self.w["position_embedding.weight"]
        for number in range(self.config["num_semantic_layers"]):
            name = f"und_trans.layers.{number}."
            rows = self.layer_norm(f"{name}layer_norm1", x, sizes["layer_norm_eps"])
            q, k, v = (self.affine(f"{name}self_attn.{part}_proj", rows) for part in "qkv")
            dim = x.shape[1] // sizes["num_attention_heads"]
            heads = [slice(at, at + dim) for at in range(0, x.shape[1], dim)]
            found = [(q[:, at] @ k[:, at].T / math.sqrt(dim)).softmax(-1) @ v[:, at] for at in heads]
            x = x + self.affine(f"{name}self_attn.out_proj", torch.cat(found, -1))
            rows = self.layer_norm(f"{name}layer_norm2", x, sizes["layer_norm_eps"])
            x = x + self.affine(f"{name}mlp.fc2", gelu_tanh(self.affine(f"{name}mlp.fc1", rows)))
        return x

    def layer_norm(self, name: str, x: Tensor, eps: float) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        scaled = centred / (centred.pow(2).mean(-1, keepdim=True) + eps).sqrt()
        return scaled * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def block(self, name: str, x: Tensor, sizes: Mapping[str, Any], num_text: int, conditions: Tensor | None) -> Tensor:
        shifts = [torch.zeros_like(x), torch.zeros_like(x), torch.ones_like(x)] * 2
        if conditions is not None:
            parts = self.affine(f"{name}adaLN_modulation.1", silu(conditions)).chunk(6, -1)
            shifts = [torch.cat((old[:num_text], new.expand_as(old[num_text:])))
                      for old, new in zip(shifts, parts, strict=True)]  # fmt: skip
        rows = self.norm(f"{name}input_layernorm", x, sizes["rms_norm_eps"]) * (1 + shifts[1]) + shifts[0]
        x = x + shifts[2] * self.attention(f"{name}self_attn.", rows, sizes, num_text)
        rows = self.norm(f"{name}post_attention_layernorm", x, sizes["rms_norm_eps"]) * (1 + shifts[4]) + shifts[3]
        inner = silu(self.affine(f"{name}mlp.gate_proj", rows)) * self.affine(f"{name}mlp.up_proj", rows)
        return x + shifts[5] * self.affine(f"{name}mlp.down_proj", inner)

    def attention(self, name: str, x: Tensor, sizes: Mapping[str, Any], num_text: int) -> Tensor:
        dim, num_rows = sizes["head_dim"], len(x)
        group = sizes["num_attention_heads"] // sizes["num_key_value_heads"]
        sees = torch.tensor([[key <= row or row >= num_text for key in range(num_rows)] for row in range(num_rows)])
        found = []
        for head in range(sizes["num_attention_heads"]):
            q, k, v = (
                self.affine(f"{name}{part}_proj", x)[:, number * dim : (number + 1) * dim]
                for part, number in (("q", head), ("k", head // group), ("v", head // group))
            )
            if f"{name}q_norm.weight" in self.w:
                q, k = (
                    self.norm(f"{name}{part}_norm", each, sizes["rms_norm_eps"]) for part, each in (("q", q), ("k", k))
                )
            scores = turned(q, sizes) @ turned(k, sizes).T / math.sqrt(dim)
            found.append(scores.masked_fill(~sees, -math.inf).softmax(-1) @ v)
        return self.affine(f"{name}o_proj", torch.cat(found, -1))

    def affine(self, name: str, x: Tensor) -> Tensor:
        bias = self.w.get(f"{name}.bias")
        out = x @ self.w[f"{name}.weight"].T
        return out if bias is None else out + bias

    def norm(self, name: str, x: Tensor, eps: float) -> Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * self.w[f"{name}.weight"]


def turned(x: Tensor, sizes: Mapping[str, Any]) -> Tensor:
    """Rotary embedding, a pair of numbers at a time."""
    out, half, scaling = x.clone(), sizes["head_dim"] // 2, sizes.get("rope_scaling")
    for number in range(half):
        wave = 2 * math.pi * sizes["rope_theta"] ** (number / half)
        if scaling:
            turns = scaling["original_max_position_embeddings"] / wave
            low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
            share = min(1.0, max(0.0, (turns - low) / (high - low)))
            wave = 1 / (share / wave + (1 - share) / (wave * scaling["factor"]))
        angles = torch.arange(len(x), dtype=torch.float64) * 2 * math.pi / wave
        first, second = x[:, number], x[:, number + half]
        out[:, number] = first * angles.cos() - second * angles.sin()
        out[:, number + half] = second * angles.cos() + first * angles.sin()
    return out


def silu(x: Tensor) -> Tensor:
    return x / (1 + (-x).exp())


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def gelu_tanh(x: Tensor) -> Tensor:
    return x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2
