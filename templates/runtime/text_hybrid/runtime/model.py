"""A hybrid decoder: blocks of gated DeltaNet or full attention, each followed by a SwiGLU MLP or a mixture of experts.

OlmoHybrid and Qwen3-Next differ in where their norms stand, in the attention's output gate and in the mixture; all of
that is in the weights (`layouts`).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from . import spans
from .attention import Attention
from .experts import Experts
from .hybrid import HybridConfig, RecurrenceLike
from .interfaces import AttentionLike, Batch, LinearLike
from .kv_cache import KVCache
from .layouts import AttentionWeights, DeltaNetWeights, ExpertsWeights, LayerWeights, final_norm, layer_weights
from .linear import Linear
from .mlp import MLP
from .parameters import Parameters
from .recurrence import Recurrence


class DeltaNet:
    """Gated DeltaNet between its projections."""

    def __init__(
        self, index: int, config: HybridConfig, weights: DeltaNetWeights, *, recurrence: RecurrenceLike,
        parameters: Parameters,
    ) -> None:
        self.index = index
        self.config = config
        self.weights = weights
        self.recurrence = recurrence
        self.rate = weights.log_rate.exp()
        self.projection: LinearLike = Linear(weights.projection, parameters=parameters)
        self.output: LinearLike = Linear(weights.output, parameters=parameters)

    def forward(self, x: Tensor, *, batch: Batch, kv_cache: KVCache) -> Tensor:
        config = self.config
        num_heads = config.linear_num_value_heads
        with spans.forward.linear:
            projected = self.projection(x)
        sizes = [config.conv_dim, config.linear_value_dim, num_heads, num_heads]
        mixed, gate, beta, steps = projected.split_with_sizes(sizes, dim=-1)
        beta = beta.sigmoid() * config.max_beta
        decay = functional.softplus(steps + self.weights.step_bias) * -self.rate
        with spans.forward.attention:
            read = self.recurrence(
                mixed, decay, beta, kernel=self.weights.kernel, layer=self.index, batch=batch, kv_cache=kv_cache
            )
        normed = rms_norm(read, self.weights.norm, config.linear_norm_eps)
        gated = normed.flatten(1) * functional.silu(gate)
        with spans.forward.linear:
            return self.output(gated)


class FullAttention:
    """Attention over normed queries and keys, its output gated where the model has a gate."""

    def __init__(
        self, index: int, config: HybridConfig, weights: AttentionWeights, *, attention: AttentionLike,
        parameters: Parameters,
    ) -> None:
        self.index = index
        self.config = config
        self.weights = weights
        self.attention = attention
        self.projection: LinearLike = Linear(weights.projection, parameters=parameters)
        self.output: LinearLike = Linear(weights.output, parameters=parameters)

    def forward(self, x: Tensor, *, batch: Batch, kv_cache: KVCache) -> Tensor:
        config, weights = self.config, self.weights
        query_dim, key_dim = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        with spans.forward.linear:
            projected = self.projection(x)
        gate_dim = query_dim if weights.is_gated else 0
        query, gate, key, value = projected.split_with_sizes([query_dim, gate_dim, key_dim, key_dim], dim=-1)
        query = self._normed(query, weights.query_norm, num_heads=config.num_heads)
        key = self._normed(key, weights.key_norm, num_heads=config.num_kv_heads)
        value = torch.unflatten(value, -1, (config.num_kv_heads, config.head_dim))
        with spans.forward.attention:
            attended = self.attention(query, key, value, layer=self.index, batch=batch, kv_cache=kv_cache)
        if weights.is_gated:
            attended = attended * gate.sigmoid()
        with spans.forward.linear:
            return self.output(attended)

    def _normed(self, x: Tensor, weight: Tensor, *, num_heads: int) -> Tensor:
        """[num_rows, num_heads * head_dim] -> [num_rows, num_heads, head_dim]; the weight's size says what is normed
        together: one head or all of them."""
        normed = rms_norm(torch.unflatten(x, -1, (-1, len(weight))), weight, self.config.rms_norm_eps)
        return normed.reshape(len(x), num_heads, self.config.head_dim)


class Layer:
    """One decoder block."""

    def __init__(
        self, config: HybridConfig, weights: LayerWeights, *, mixer: DeltaNet | FullAttention, mlp: MLP | Experts
    ) -> None:
        self.eps = config.rms_norm_eps
        self.weights = weights
        self.mixer = mixer
        self.mlp = mlp

    def forward(self, x: Tensor, *, batch: Batch, kv_cache: KVCache) -> Tensor:
        """f32 [num_rows, hidden_size] -> the same."""
        weights = self.weights
        mixed = self.mixer.forward(self._normed(x, weights.pre_mixer_norm), batch=batch, kv_cache=kv_cache)
        x = x + self._normed(mixed, weights.post_mixer_norm)
        return x + self._normed(self.mlp.forward(self._normed(x, weights.pre_mlp_norm)), weights.post_mlp_norm)

    def _normed(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return x if weight is None else rms_norm(x, weight, self.eps)


class Model:
    """See `interfaces.ModelLike`."""

    def __init__(self, config: HybridConfig, weights: dict[str, Tensor], *, parameters: Parameters) -> None:
        self.config = config
        self.parameters = parameters
        self.embedding = weights["model.embed_tokens.weight"]
        self.attention: AttentionLike = Attention(config, parameters=parameters)
        self.recurrence: RecurrenceLike = Recurrence(config, parameters=parameters)
        self.layers = [self._layer(index, weights) for index in range(config.num_layers)]
        self.norm = final_norm(config, weights)
        head = self.embedding if config.tie_word_embeddings else weights["lm_head.weight"]
        self.head: LinearLike = Linear(head, parameters=parameters)

    @torch.inference_mode()
    def forward(self, batch: Batch, kv_cache: KVCache) -> Tensor:
        kv_cache.begin(batch)
        x = self.embedding[batch.token_ids].float()
        for layer in self.layers:
            x = layer.forward(x, batch=batch, kv_cache=kv_cache)
        kv_cache.end(batch)
        x = rms_norm(x[list(batch.logits_rows)], self.norm, self.config.rms_norm_eps)
        with spans.forward.linear:
            return self.head(x)

    def _layer(self, index: int, weights: dict[str, Tensor]) -> Layer:
        config, parameters = self.config, self.parameters
        own = layer_weights(config, weights, index)
        mixer: DeltaNet | FullAttention
        if isinstance(own.mixer, DeltaNetWeights):
            mixer = DeltaNet(index, config, own.mixer, recurrence=self.recurrence, parameters=parameters)
        else:
            mixer = FullAttention(index, config, own.mixer, attention=self.attention, parameters=parameters)
        mlp: MLP | Experts
        if isinstance(own.mlp, ExpertsWeights):
            mlp = Experts(config, own.mlp, parameters=parameters)
        else:
            mlp = MLP(own.mlp, parameters=parameters)
        return Layer(config, own, mixer=mixer, mlp=mlp)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Root-mean-square norm over the last dimension (Zhang and Sennrich 2019)."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight
