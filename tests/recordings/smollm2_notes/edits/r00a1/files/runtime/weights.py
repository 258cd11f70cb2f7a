"""Read the model's configuration and its bf16 weights from `{model_dir}/bf16`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from .interfaces import ModelConfig

WEIGHTS_DIR = "bf16"


def load_config(model_dir: Path) -> ModelConfig:
    """Configuration of the model in `model_dir`; raises ValueError for what this runtime does not implement."""
    folder = model_dir / WEIGHTS_DIR
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    _check_supported(config)
    rope = config.get("rope_parameters") or config
    num_heads = config["num_attention_heads"]
    return ModelConfig(
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        intermediate_size=config["intermediate_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=num_heads,
        num_kv_heads=config.get("num_key_value_heads") or num_heads,
        head_dim=config.get("head_dim") or config["hidden_size"] // num_heads,
        rms_norm_eps=config["rms_norm_eps"],
        rope_theta=float(rope["rope_theta"]),
        max_position_embeddings=config["max_position_embeddings"],
        tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
        eos_token_ids=_eos_token_ids(folder, config),
    )


def load_weights(model_dir: Path) -> dict[str, Tensor]:
    """Tensors by their name in the checkpoint, bf16, memory-mapped until they are first read."""
    weights: dict[str, Tensor] = {}
    for path in sorted((model_dir / WEIGHTS_DIR).glob("*.safetensors")):
        weights.update(load_file(path))
    return weights


def _check_supported(config: dict[str, Any]) -> None:
    if config.get("model_type") != "llama":
        raise ValueError(f"config.json: model_type '{config.get('model_type')}' is not supported; supported: llama")
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    rope_type = rope.get("rope_type", rope.get("type", "default"))
    if rope_type != "default":
        raise ValueError(f"config.json: rope type '{rope_type}' is not supported; supported: default")
    for name in ("attention_bias", "mlp_bias"):
        if config.get(name):
            raise ValueError(f"config.json: {name} is not supported")
    if config.get("hidden_act", "silu") != "silu":
        raise ValueError(f"config.json: hidden_act '{config['hidden_act']}' is not supported; supported: silu")


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
