"""Read the model's configuration and its bf16 weights from `{model_dir}/bf16`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from .interfaces import ModelConfig

WEIGHTS_DIR = "bf16"
UNBOUNDED_TOKENS = 1 << 20
"""positions of a model that declares no end to them, such as a state-space model"""


@dataclass(frozen=True, kw_only=True, slots=True)
class WrappedConfig(ModelConfig):
    """Sizes as far as the architecture has them (else 0), and where transformers finds the whole configuration."""

    folder: Path
    """holds config.json"""


def load_config(model_dir: Path) -> WrappedConfig:
    """Configuration of the model in `model_dir`, whatever its architecture."""
    folder = model_dir / WEIGHTS_DIR
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    num_heads = config.get("num_attention_heads") or config.get("num_heads") or 0
    hidden_size = config["hidden_size"]
    return WrappedConfig(
        vocab_size=config["vocab_size"],
        hidden_size=hidden_size,
        intermediate_size=config.get("intermediate_size") or 0,
        num_layers=config["num_hidden_layers"],
        num_heads=num_heads,
        num_kv_heads=config.get("num_key_value_heads") or num_heads,
        head_dim=config.get("head_dim") or (hidden_size // num_heads if num_heads else 0),
        rms_norm_eps=config.get("rms_norm_eps") or 0.0,
        rope_theta=float((config.get("rope_parameters") or config).get("rope_theta") or 0.0),
        max_position_embeddings=config.get("max_position_embeddings") or UNBOUNDED_TOKENS,
        tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
        eos_token_ids=_eos_token_ids(folder, config),
        folder=folder,
    )


def load_weights(model_dir: Path) -> dict[str, Tensor]:
    """Tensors by their name in the checkpoint, bf16, memory-mapped until they are first read."""
    weights: dict[str, Tensor] = {}
    for path in sorted((model_dir / WEIGHTS_DIR).glob("*.safetensors")):
        weights.update(load_file(path))
    return weights


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
