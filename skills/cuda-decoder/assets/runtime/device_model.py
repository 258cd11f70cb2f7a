"""Llama-architecture decoder in bf16 on the device, query-key-value and gate-up as one product each."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from .attention import Attention
from .device import DeviceRows, compute_device, rows_on
from .interfaces import Batch, ModelConfig
from .kv_cache import KVCache
from .linear import Linear
from .parameters import Parameters


class DeviceLayer:
    """One transformer block."""

    def __init__(self, index: int, config: ModelConfig, weights: dict[str, Tensor], parameters: Parameters) -> None:
        def named(*names: str) -> Tensor:
            return torch.cat([weights[f"model.layers.{index}.{name}.weight"] for name in names])

        device = compute_device(parameters)
        self.index = index
        self.config = config
        self.qkv = Linear(named("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), parameters=parameters)
        self.output = Linear(named("self_attn.o_proj"), parameters=parameters)
        self.gate_up = Linear(named("mlp.gate_proj", "mlp.up_proj"), parameters=parameters)
        self.down = Linear(named("mlp.down_proj"), parameters=parameters)
        self.input_norm = named("input_layernorm").to(device, torch.bfloat16)
        self.mlp_norm = named("post_attention_layernorm").to(device, torch.bfloat16)

    def projections(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Query, key and value of the rows, [num_rows, heads, head_dim] each."""
        config = self.config
        heads = self.qkv(norm(x, self.input_norm, config)).view(len(x), -1, config.head_dim)
        return heads.split((config.num_heads, config.num_kv_heads, config.num_kv_heads), dim=1)

    def finish(self, x: Tensor, attended: Tensor) -> Tensor:
        """What follows attention: its projection, the MLP, and both residuals."""
        x = x + self.output(attended)
        gate, up = self.gate_up(norm(x, self.mlp_norm, self.config)).chunk(2, dim=-1)
        return x + self.down(functional.silu(gate) * up)


class DeviceModel:
    """See `interfaces.ModelLike`. Kernels run behind the caller: the spans of linears and attention stay empty."""

    def __init__(self, config: ModelConfig, weights: dict[str, Tensor], *, parameters: Parameters) -> None:
        self.config = config
        self.device = compute_device(parameters)
        self.max_context_tokens = parameters.max_context_tokens
        self.embedding = weights["model.embed_tokens.weight"].to(self.device, torch.bfloat16)
        self.layers = [DeviceLayer(index, config, weights, parameters) for index in range(config.num_layers)]
        self.norm = weights["model.norm.weight"].to(self.device, torch.bfloat16)
        head = self.embedding if config.tie_word_embeddings else weights["lm_head.weight"]
        self.head = Linear(head, parameters=parameters)
        self.attention = Attention(config, parameters=parameters)

    @torch.inference_mode()
    def forward(self, batch: Batch, kv_cache: KVCache) -> Tensor:
        """Logits come back to the host, where they are sampled."""
        rows = rows_on(self.device, batch, max_context_tokens=self.max_context_tokens)
        return self.logits(self.hidden(rows, kv_cache)[list(batch.logits_rows)]).cpu()

    def hidden(self, rows: DeviceRows, kv_cache: KVCache) -> Tensor:
        x = self.embedding[rows.token_ids]
        for layer in self.layers:
            query, key, value = layer.projections(x)
            attended = self.attention(query, key, value, layer=layer.index, rows=rows, kv_cache=kv_cache)
            x = layer.finish(x, attended)
        return x

    def logits(self, x: Tensor) -> Tensor:
        """f32, of hidden rows."""
        return self.head(norm(x, self.norm, self.config)).float()


def norm(x: Tensor, weight: Tensor, config: ModelConfig) -> Tensor:
    """Root-mean-square norm over the last dimension, in f32 (Zhang and Sennrich 2019)."""
    wide = x.float()
    scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + config.rms_norm_eps)
    return (scaled * weight.float()).to(x.dtype)
