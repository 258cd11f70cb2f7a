"""Read the model's configuration and its bf16 weights from `{model_dir}/bf16`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from .interfaces import EncoderConfig, ModelConfig

WEIGHTS_DIR = "bf16"
STREAMING, WHOLE = "moonshine_streaming", "moonshine"


def load_config(model_dir: Path) -> ModelConfig:
    """Configuration of the model in `model_dir`; raises ValueError for what this runtime does not implement."""
    config = json.loads((model_dir / WEIGHTS_DIR / "config.json").read_text(encoding="utf-8"))
    kind = config.get("model_type")
    if kind not in (STREAMING, WHOLE):
        raise ValueError(f"config.json: model_type '{kind}' is not supported; supported: {STREAMING}, {WHOLE}")
    _check_supported(config)
    prefix = "" if kind == STREAMING else "decoder_"
    rope, num_heads = config["rope_parameters"], config[f"{prefix}num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // num_heads
    end, start = config["eos_token_id"], config.get("decoder_start_token_id")
    return ModelConfig(
        encoder=_streaming_encoder(config["encoder_config"]) if kind == STREAMING else _whole_encoder(config),
        vocab_size=config["vocab_size"],
        hidden_size=config["hidden_size"],
        num_layers=config[f"{prefix}num_hidden_layers"],
        num_heads=num_heads,
        head_dim=head_dim,
        rotary_dim=int(head_dim * rope.get("partial_rotary_factor", 1.0)),
        rope_theta=float(rope["rope_theta"]),
        max_positions=config["max_position_embeddings"],
        sample_rate_hz=config["encoder_config"]["sample_rate"] if kind == STREAMING else 16000,
        start_token_id=config["bos_token_id"] if start is None else start,
        end_token_id=end[0] if isinstance(end, list) else end,
    )


def load_weights(model_dir: Path) -> dict[str, Tensor]:
    """Tensors by their name in the checkpoint without `model.`, bf16, memory-mapped until they are first read."""
    weights: dict[str, Tensor] = {}
    for path in sorted((model_dir / WEIGHTS_DIR).glob("*.safetensors")):
        weights.update({name.removeprefix("model."): tensor for name, tensor in load_file(path).items()})
    return weights


def _streaming_encoder(config: dict[str, Any]) -> EncoderConfig:
    return EncoderConfig(
        num_layers=config["num_hidden_layers"],
        hidden_size=config["hidden_size"],
        num_heads=config["num_attention_heads"],
        head_dim=config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
        frame_samples=round(config["sample_rate"] * config["frame_ms"] / 1000),
        windows=tuple((int(back), int(ahead)) for back, ahead in config["sliding_windows"]),
    )


def _whole_encoder(config: dict[str, Any]) -> EncoderConfig:
    head_dim = config["hidden_size"] // config["encoder_num_attention_heads"]
    rope = config["rope_parameters"]
    return EncoderConfig(
        num_layers=config["encoder_num_hidden_layers"],
        hidden_size=config["hidden_size"],
        num_heads=config["encoder_num_attention_heads"],
        head_dim=head_dim,
        rotary_dim=int(head_dim * rope.get("partial_rotary_factor", 1.0)),
        rope_theta=float(rope["rope_theta"]),
    )


def _check_supported(config: dict[str, Any]) -> None:
    encoder = config.get("encoder_config", {})
    if config["rope_parameters"].get("rope_type", "default") != "default":
        raise ValueError("config.json: only the default rope type is supported")
    if config.get("attention_bias") or encoder.get("attention_bias"):
        raise ValueError("config.json: attention_bias is not supported")
    for part in ("", "encoder_", "decoder_"):
        heads, groups = (config.get(f"{part}{name}") for name in ("num_attention_heads", "num_key_value_heads"))
        if heads and groups and heads != groups:
            raise ValueError("config.json: grouped keys and values are not supported")
    own = config.get("hidden_act") or config.get("decoder_hidden_act", "silu")
    acts = (own, config.get("encoder_hidden_act") or encoder.get("hidden_act", "gelu"))
    if acts != ("silu", "gelu"):
        raise ValueError(f"config.json: activations {acts} are not supported: silu and gelu are")
