"""One rank of the Llama decoder (Touvron et al. 2023), as Megatron-LM splits it (Shoeybi et al. 2019, section 3).

Every rank computes its own heads and neurons. What they exchange are the sums over all ranks, one after attention and
one after the MLP of each block, and in the end the logits of their parts of the vocabulary.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from . import spans
from .attention import Attention
from .interfaces import AttentionLike, Batch, LinearLike, ModelConfig, Segment
from .kv_cache import KVCache
from .linear import Linear
from .parameters import Parameters
from .ranks import Ranks
from .weights import EMBEDDING, HEAD, Shard


class Layer:
    """This rank's part of one decoder block."""

    def __init__(self, index: int, config: ModelConfig, weights: Shard, parameters: Parameters) -> None:
        prefix = f"model.layers.{index}."

        def linear(name: str) -> LinearLike:
            return Linear(weights[f"{prefix}{name}.weight"], parameters=parameters)

        self.index = index
        self.config = config
        self.ranks = weights.ranks
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
            part = self.output(attended)
        x = x + self.ranks.all_reduce(part)
        normed = rms_norm(x, self.mlp_norm, self.config.rms_norm_eps)
        with spans.forward.linear:
            gate, up = self.gate(normed), self.up(normed)
        activated = functional.silu(gate) * up
        with spans.forward.linear:
            part = self.down(activated)
        return x + self.ranks.all_reduce(part)


class Model:
    """See `interfaces.ModelLike`. `forward` of rank 0 has the other ranks run the same step."""

    def __init__(self, config: ModelConfig, weights: Shard, *, parameters: Parameters) -> None:
        self.config = config
        self.ranks: Ranks = weights.ranks
        self.embedding = weights[EMBEDDING]
        self.layers = [Layer(index, config, weights, parameters) for index in range(config.num_layers)]
        self.norm = weights["model.norm.weight"].float()
        self.head: LinearLike = Linear(weights[HEAD], parameters=parameters)
        self.attention: AttentionLike = Attention(config, parameters=parameters)

    @torch.inference_mode()
    def forward(self, batch: Batch, kv_cache: KVCache) -> Tensor:
        """Logits f32 [len(batch.logits_rows), vocab_size] on rank 0, [.., 0] on the others."""
        if self.ranks.rank == 0:
            self.ranks.tell(document_of(batch))
        x = self.embedding[batch.token_ids].float()
        for layer in self.layers:
            x = layer.forward(x, attention=self.attention, batch=batch, kv_cache=kv_cache)
        x = rms_norm(x[list(batch.logits_rows)], self.norm, self.config.rms_norm_eps)
        with spans.forward.linear:
            part = self.head(x)
        parts = self.ranks.gather(part.contiguous())
        return torch.cat(parts, dim=-1)[:, : self.config.vocab_size] if parts else part[:, :0]


def document_of(batch: Batch) -> dict[str, Any]:
    """A step as the other ranks are told it."""
    return {
        "do": "step",
        "token_ids": batch.token_ids.tolist(),
        "positions": batch.positions.tolist(),
        "segments": [asdict(segment) for segment in batch.segments],
        "logits_rows": list(batch.logits_rows),
    }


def batch_of(document: dict[str, Any]) -> Batch:
    """The step of `document_of`."""
    return Batch(
        token_ids=torch.tensor(document["token_ids"], dtype=torch.int64),
        positions=torch.tensor(document["positions"], dtype=torch.int64),
        segments=tuple(Segment(**segment) for segment in document["segments"]),
        logits_rows=tuple(document["logits_rows"]),
    )


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last dimension (Zhang and Sennrich 2019)."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight
