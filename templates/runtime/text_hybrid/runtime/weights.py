"""Read a hybrid model's configuration and its bf16 weights from `{model_dir}/bf16`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from .hybrid import FULL_ATTENTION, LINEAR_ATTENTION, HybridConfig

WEIGHTS_DIR = "bf16"
ARCHITECTURES = ("olmo_hybrid", "qwen3_next")
OLMO_NORM_EPS = 1e-5
"""of the norm behind OlmoHybrid's recurrence, which its configuration does not name (transformers 5.24)"""


def load_config(model_dir: Path) -> HybridConfig:
    """Configuration of the model in `model_dir`; raises ValueError for what this runtime does not implement."""
    folder = model_dir / WEIGHTS_DIR
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    _check_supported(config)
    num_heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // num_heads
    rope_theta, rotary_dim = _rotary(config, head_dim)
    is_olmo = config["model_type"] == "olmo_hybrid"
    return HybridConfig(
        architecture=config["model_type"],
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=num_heads,
        num_kv_heads=config.get("num_key_value_heads") or num_heads,
        head_dim=head_dim,
        rms_norm_eps=config["rms_norm_eps"],
        rope_theta=rope_theta,
        rotary_dim=rotary_dim,
        max_position_embeddings=config["max_position_embeddings"],
        tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
        eos_token_ids=_eos_token_ids(folder, config),
        layer_types=tuple(config["layer_types"]),
        linear_num_key_heads=config["linear_num_key_heads"],
        linear_num_value_heads=config["linear_num_value_heads"],
        linear_key_head_dim=config["linear_key_head_dim"],
        linear_value_head_dim=config["linear_value_head_dim"],
        conv_kernel=config["linear_conv_kernel_dim"],
        max_beta=2.0 if is_olmo and config.get("linear_allow_neg_eigval", True) else 1.0,
        linear_norm_eps=OLMO_NORM_EPS if is_olmo else config["rms_norm_eps"],
        num_experts_per_token=0 if is_olmo else config["num_experts_per_tok"],
        normalise_experts=bool(config.get("norm_topk_prob", True)),
    )


def load_weights(model_dir: Path) -> dict[str, Tensor]:
    """Tensors by their name in the checkpoint, bf16, memory-mapped until they are first read."""
    weights: dict[str, Tensor] = {}
    for path in sorted((model_dir / WEIGHTS_DIR).glob("*.safetensors")):
        weights.update(load_file(path))
    return weights


def _rotary(config: dict[str, Any], head_dim: int) -> tuple[float, int]:
    """Base and size of the rotary embedding; (0, 0) for attention without positions."""
    rope = config.get("rope_parameters") or {}
    theta = rope.get("rope_theta")
    if theta is None:
        return 0.0, 0
    return float(theta), int(head_dim * rope.get("partial_rotary_factor", 1.0))


def _check_supported(config: dict[str, Any]) -> None:
    if config.get("model_type") not in ARCHITECTURES:
        what = f"config.json: model_type '{config.get('model_type')}' is not supported"
        raise ValueError(f"{what}; supported: {', '.join(ARCHITECTURES)}")
    rope_type = (config.get("rope_parameters") or {}).get("rope_type", "default")
    if rope_type != "default":
        raise ValueError(f"config.json: rope type '{rope_type}' is not supported; supported: default")
    unknown = sorted(set(config["layer_types"]) - {LINEAR_ATTENTION, FULL_ATTENTION})
    if unknown:
        raise ValueError(f"config.json: layer type '{unknown[0]}' is not supported")
    if config.get("attention_bias"):
        raise ValueError("config.json: attention_bias is not supported")
    if config.get("hidden_act", "silu") != "silu":
        raise ValueError(f"config.json: hidden_act '{config['hidden_act']}' is not supported; supported: silu")
    if config["linear_num_value_heads"] % config["linear_num_key_heads"]:
        raise ValueError("config.json: linear_num_value_heads must be a multiple of linear_num_key_heads")


def _eos_token_ids(folder: Path, config: dict[str, Any]) -> tuple[int, ...]:
    """End tokens of `generation_config.json` where it names any, else of `config.json`, as the stock servers do."""
    path = folder / "generation_config.json"
    generation = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    declared = generation.get("eos_token_id")
    if declared is None:
        declared = config.get("eos_token_id")
    if declared is None:
        return ()
    return tuple(declared) if isinstance(declared, list) else (declared,)
