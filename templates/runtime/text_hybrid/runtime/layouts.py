"""One layout of a layer's weights for all architectures: what is multiplied with the same rows lies in one matrix.

The checkpoints differ in names, in what they fuse and in the order of fused rows; the arithmetic does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from .hybrid import LINEAR_ATTENTION, HybridConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class DeltaNetWeights:
    """Gated DeltaNet. Matrices bf16 [num_out, num_in], everything else f32."""

    projection: Tensor
    """rows: queries, keys, values, output gate, beta, decay"""
    kernel: Tensor
    """[conv_kernel, conv_dim], oldest position first"""
    log_rate: Tensor
    """[value heads]: logarithm of the decay's rate"""
    step_bias: Tensor
    """[value heads]"""
    norm: Tensor
    """[value_head_dim]"""
    output: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionWeights:
    """Full attention with normed queries and keys."""

    projection: Tensor
    """rows: queries, output gate (none where `is_gated` is false), keys, values"""
    is_gated: bool
    query_norm: Tensor
    """[head_dim], or [num_heads * head_dim] where all heads are normed together"""
    key_norm: Tensor
    output: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class MLPWeights:
    """SwiGLU."""

    gate_up: Tensor
    """rows: gate, up"""
    down: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertsWeights:
    """A mixture of experts beside one that serves every token."""

    router: Tensor
    experts: tuple[MLPWeights, ...]
    shared: MLPWeights
    shared_gate: Tensor
    """[1, hidden_size]"""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerWeights:
    """One decoder block. A norm that the architecture has not is None; norms are f32 factors."""

    mixer: DeltaNetWeights | AttentionWeights
    mlp: MLPWeights | ExpertsWeights
    pre_mixer_norm: Tensor | None = None
    post_mixer_norm: Tensor | None = None
    pre_mlp_norm: Tensor | None = None
    post_mlp_norm: Tensor | None = None


Weights = Mapping[str, Tensor]


def layer_weights(config: HybridConfig, weights: Weights, index: int) -> LayerWeights:
    """Weights of layer `index`. Raises KeyError for a tensor that the checkpoint lacks."""
    return LAYOUTS[config.architecture](config, weights, f"model.layers.{index}.", index)


def final_norm(config: HybridConfig, weights: Weights) -> Tensor:
    """Factor of the norm before the LM head, f32 [hidden_size]."""
    return norm_factor(config, weights["model.norm.weight"])


def norm_factor(config: HybridConfig, weight: Tensor) -> Tensor:
    """Qwen3-Next stores the difference from 1."""
    return weight.float() + 1.0 if config.architecture == "qwen3_next" else weight.float()


def _olmo_layer(config: HybridConfig, weights: Weights, prefix: str, index: int) -> LayerWeights:
    def norm(*names: str) -> Tensor:
        """Checkpoints have two names for some norms; transformers reads both."""
        found = next((name for name in names if f"{prefix}{name}.weight" in weights), names[0])
        return weights[f"{prefix}{found}.weight"].float()

    mlp = _mlp(weights, f"{prefix}mlp.")
    if config.layer_types[index] == LINEAR_ATTENTION:
        return LayerWeights(
            mixer=_olmo_delta_net(weights, f"{prefix}linear_attn."),
            mlp=mlp,
            pre_mixer_norm=norm("input_layernorm", "attention_layer_norm"),
            pre_mlp_norm=norm("post_attention_layernorm", "feedforward_layer_norm"),
        )
    own = f"{prefix}self_attn."
    return LayerWeights(
        mixer=AttentionWeights(
            projection=torch.cat([weights[f"{own}{name}_proj.weight"] for name in "qkv"]),
            is_gated=False,
            query_norm=weights[f"{own}q_norm.weight"].float(),
            key_norm=weights[f"{own}k_norm.weight"].float(),
            output=weights[f"{own}o_proj.weight"],
        ),
        mlp=mlp,
        post_mixer_norm=norm("post_attention_layernorm", "feedforward_layer_norm"),
        post_mlp_norm=norm("post_feedforward_layernorm"),
    )


def _olmo_delta_net(weights: Weights, prefix: str) -> DeltaNetWeights:
    whole = weights.get(f"{prefix}conv1d.weight")
    kernel = whole if whole is not None else torch.cat([weights[f"{prefix}{name}_conv1d.weight"] for name in "qkv"])
    return DeltaNetWeights(
        projection=torch.cat([weights[f"{prefix}{name}_proj.weight"] for name in "qkvgba"]),
        kernel=kernel.squeeze(1).T.float().contiguous(),
        log_rate=weights[f"{prefix}A_log"].float(),
        step_bias=weights[f"{prefix}dt_bias"].float(),
        norm=weights[f"{prefix}o_norm.weight"].float(),
        output=weights[f"{prefix}o_proj.weight"],
    )


def _qwen_layer(config: HybridConfig, weights: Weights, prefix: str, index: int) -> LayerWeights:
    is_linear = config.layer_types[index] == LINEAR_ATTENTION
    is_mixture = f"{prefix}mlp.gate.weight" in weights
    return LayerWeights(
        mixer=(
            _qwen_delta_net(config, weights, f"{prefix}linear_attn.")
            if is_linear
            else _qwen_attention(config, weights, f"{prefix}self_attn.")
        ),
        mlp=_experts(weights, f"{prefix}mlp.") if is_mixture else _mlp(weights, f"{prefix}mlp."),
        pre_mixer_norm=norm_factor(config, weights[f"{prefix}input_layernorm.weight"]),
        pre_mlp_norm=norm_factor(config, weights[f"{prefix}post_attention_layernorm.weight"]),
    )


def _qwen_delta_net(config: HybridConfig, weights: Weights, prefix: str) -> DeltaNetWeights:
    """Its fused rows come key head after key head: query, key, then values and gates of the value heads it serves."""
    num_served = config.linear_num_value_heads // config.linear_num_key_heads
    key_dim, value_dim = config.linear_key_head_dim, config.linear_value_head_dim * num_served
    fused = torch.unflatten(weights[f"{prefix}in_proj_qkvz.weight"], 0, (config.linear_num_key_heads, -1))
    parts = [part.flatten(0, 1) for part in fused.split_with_sizes([key_dim, key_dim, value_dim, value_dim], dim=1)]
    steps = torch.unflatten(weights[f"{prefix}in_proj_ba.weight"], 0, (config.linear_num_key_heads, -1))
    parts += [part.flatten(0, 1) for part in steps.split_with_sizes([num_served, num_served], dim=1)]
    return DeltaNetWeights(
        projection=torch.cat(parts),
        kernel=weights[f"{prefix}conv1d.weight"].squeeze(1).T.float().contiguous(),
        log_rate=weights[f"{prefix}A_log"].float(),
        step_bias=weights[f"{prefix}dt_bias"].float(),
        norm=weights[f"{prefix}norm.weight"].float(),
        output=weights[f"{prefix}out_proj.weight"],
    )


def _qwen_attention(config: HybridConfig, weights: Weights, prefix: str) -> AttentionWeights:
    """Its query rows come head after head: the query, then its gate."""
    queries = torch.unflatten(weights[f"{prefix}q_proj.weight"], 0, (config.num_heads, 2, config.head_dim))
    parts = [queries[:, 0].flatten(0, 1), queries[:, 1].flatten(0, 1)]
    parts += [weights[f"{prefix}{name}_proj.weight"] for name in "kv"]
    return AttentionWeights(
        projection=torch.cat(parts),
        is_gated=True,
        query_norm=norm_factor(config, weights[f"{prefix}q_norm.weight"]),
        key_norm=norm_factor(config, weights[f"{prefix}k_norm.weight"]),
        output=weights[f"{prefix}o_proj.weight"],
    )


def _mlp(weights: Weights, prefix: str) -> MLPWeights:
    return MLPWeights(
        gate_up=torch.cat([weights[f"{prefix}{name}_proj.weight"] for name in ("gate", "up")]),
        down=weights[f"{prefix}down_proj.weight"],
    )


def _experts(weights: Weights, prefix: str) -> ExpertsWeights:
    router = weights[f"{prefix}gate.weight"]
    return ExpertsWeights(
        router=router,
        experts=tuple(_mlp(weights, f"{prefix}experts.{number}.") for number in range(len(router))),
        shared=_mlp(weights, f"{prefix}shared_expert."),
        shared_gate=weights[f"{prefix}shared_expert_gate.weight"],
    )


Layout = Callable[[HybridConfig, Weights, str, int], LayerWeights]
LAYOUTS: dict[str, Layout] = {"olmo_hybrid": _olmo_layer, "qwen3_next": _qwen_layer}
