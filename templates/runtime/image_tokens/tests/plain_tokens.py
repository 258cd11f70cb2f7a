"""The network again, written straight from its definition: whole sequences, one head at a time, no shared code."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def plain_logits(
    weights: Mapping[str, Tensor], config: Mapping[str, Any], token_ids: Sequence[int], codes: Sequence[int]
) -> Tensor:
    """Of the code behind the text and each of `codes`, [1 + num, num_codes], f32; `config` is config.json."""
    net = _Plain({name: tensor.double() for name, tensor in weights.items()}, config["text_config"])
    return net.logits(token_ids, codes, num_layers=config["vq_config"]["num_hidden_layers"]).float()


class _Plain:
    def __init__(self, weights: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> None:
        self.w, self.sizes = weights, sizes

    def logits(self, token_ids: Sequence[int], codes: Sequence[int], *, num_layers: int) -> Tensor:
        x = torch.stack([self.w["model.language_model.embed_tokens.weight"][each] for each in token_ids])
        for code in codes:
            row = self.affine("model.generation_aligner.fc1", self.w["model.generation_embeddings.weight"][code])
            for number in range(num_layers - 1):
                row = self.affine(f"model.generation_aligner.hidden_layers.{number}", gelu(row))
            x = torch.cat((x, row[None]))
        for number in range(self.sizes["num_hidden_layers"]):
            x = self.block(f"model.language_model.layers.{number}.", x)
        x = self.norm("model.language_model.norm", x)[len(token_ids) - 1 :]
        inner = gelu(self.affine("model.generation_head.proj_out", x))
        return self.affine("model.generation_head.vision_head", inner)

    def block(self, name: str, x: Tensor) -> Tensor:
        x = x + self.attention(f"{name}self_attn.", self.norm(f"{name}input_layernorm", x))
        rows = self.norm(f"{name}post_attention_layernorm", x)
        gate = self.affine(f"{name}mlp.gate_proj", rows)
        inner = gate / (1 + (-gate).exp()) * self.affine(f"{name}mlp.up_proj", rows)
        return x + self.affine(f"{name}mlp.down_proj", inner)

    def attention(self, name: str, x: Tensor) -> Tensor:
        dim, num_rows = self.sizes["head_dim"], len(x)
        group = self.sizes["num_attention_heads"] // self.sizes["num_key_value_heads"]
        hidden = torch.tensor([[key > row for key in range(num_rows)] for row in range(num_rows)])
        found = []
        for head in range(self.sizes["num_attention_heads"]):
            q, k, v = (
                self.affine(f"{name}{part}_proj", x)[:, number * dim : (number + 1) * dim]
                for part, number in (("q", head), ("k", head // group), ("v", head // group))
            )
            scores = self.turned(q) @ self.turned(k).T / math.sqrt(dim)
            found.append(scores.masked_fill(hidden, -math.inf).softmax(-1) @ v)
        return self.affine(f"{name}o_proj", torch.cat(found, -1))

    def turned(self, x: Tensor) -> Tensor:
        """Rotary embedding, a pair of numbers at a time."""
        out, half = x.clone(), self.sizes["head_dim"] // 2
        for number in range(half):
            angles = torch.arange(len(x), dtype=torch.float64) * self.sizes["rope_theta"] ** (-number / half)
            first, second = x[:, number], x[:, number + half]
            out[:, number] = first * angles.cos() - second * angles.sin()
            out[:, number + half] = second * angles.cos() + first * angles.sin()
        return out

    def affine(self, name: str, x: Tensor) -> Tensor:
        out, bias = x @ self.w[f"{name}.weight"].T, self.w.get(f"{name}.bias")
        return out if bias is None else out + bias

    def norm(self, name: str, x: Tensor) -> Tensor:
        scale = (x.pow(2).mean(-1, keepdim=True) + self.sizes["rms_norm_eps"]).sqrt()
        return x / scale * self.w[f"{name}.weight"]


def gelu(x: Tensor) -> Tensor:
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2
