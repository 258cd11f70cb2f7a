"""The Llama decoder (Touvron et al. 2023): pre-norm blocks of grouped-query attention and a SwiGLU MLP."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from . import spans
from .attention import Attention
from .interfaces import AttentionLike, Batch, LinearLike, ModelConfig
from .kv_cache import KVCache
from .linear import Linear
from .parameters import Parameters


class Layer:
    """One decoder block."""

    def __init__(self, index: int, config: ModelConfig, weights: dict[str, Tensor], parameters: Parameters) -> None:
        prefix = f"model.layers.{index}."

        def linear(name: str) -> LinearLike:
            return Linear(weights[f"{prefix}{name}.weight"], parameters=parameters)

        self.index = index
        self.config = config
        self.query = linear("self_attn.q_proj")
        self.key = linear("self_attn.k_proj")
        self.value = linear("self_attn.v_proj")
        self.output = linear("self_attn.o_proj")
        self.gate = linear("mlp.gate_proj")
        self.up = linear("mlp.up_proj")
        self.down = linear("mlp.down_proj")
        self.input_norm = weights[f"{prefix}input_layernorm.weight"].float()
        self.mlp_norm = weights[f"{prefix}post_attention_layernorm.weight"].float()

    def forward(self, x: Tensor, *, attention: AttentionLike, batch: Batch, kv_cache: KVCache) -> Tensor:
        """f32 [num_rows, hidden_size] -> the same."""
        head_dim = self.config.head_dim
        normed = rms_norm(x, self.input_norm, self.config.rms_norm_eps)
        with spans.forward.linear:
            query = self.query(normed).view(len(x), -1, head_dim)
            key = self.key(normed).view(len(x), -1, head_dim)
            value = self.value(normed).view(len(x), -1, head_dim)
        with spans.forward.attention:
            attended = attention(query, key, value, layer=self.index, batch=batch, kv_cache=kv_cache)
        with spans.forward.linear:
            x = x + self.output(attended)
        normed = rms_norm(x, self.mlp_norm, self.config.rms_norm_eps)
        with spans.forward.linear:
            gate, up = self.gate(normed), self.up(normed)
        activated = functional.silu(gate) * up
        with spans.forward.linear:
            return x + self.down(activated)


class Model:
    """See `interfaces.ModelLike`."""

    def __init__(self, config: ModelConfig, weights: dict[str, Tensor], *, parameters: Parameters) -> None:
        self.config = config
        self.embedding = weights["model.embed_tokens.weight"]
        self.layers = [Layer(index, config, weights, parameters) for index in range(config.num_layers)]
        self.norm = weights["model.norm.weight"].float()
        head = self.embedding if config.tie_word_embeddings else weights["lm_head.weight"]
        self.head: LinearLike = Linear(head, parameters=parameters)
        self.attention: AttentionLike = Attention(config, parameters=parameters)

    @torch.inference_mode()
    def forward(self, batch: Batch, kv_cache: KVCache) -> Tensor:
        x = self.embedding[batch.token_ids].float()
        for layer in self.layers:
            x = layer.forward(x, attention=self.attention, batch=batch, kv_cache=kv_cache)
        x = rms_norm(x[list(batch.logits_rows)], self.norm, self.config.rms_norm_eps)
        with spans.forward.linear:
            return self.head(x)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last dimension (Zhang and Sennrich 2019)."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight
