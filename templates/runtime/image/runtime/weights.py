"""Read the model's configuration and its bf16 weights from `{model_dir}/bf16`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import Tensor

from .interfaces import BlockConfig, DecoderConfig, ModelConfig, SemanticConfig

WEIGHTS_DIR = "bf16"
MODEL_TYPE = "show_o2"


def load_config(model_dir: Path) -> ModelConfig:
    """Configuration of the model in `model_dir`; raises ValueError for what this runtime does not implement."""
    config = json.loads((model_dir / WEIGHTS_DIR / "config.json").read_text(encoding="utf-8"))
    if config.get("model_type") != MODEL_TYPE:
        raise ValueError(f"config.json: model_type '{config.get('model_type')}' is not supported; valid: {MODEL_TYPE}")
    if not config["add_time_embeds"]:
        raise ValueError("config.json: a model without an embedding of the time is not supported")
    vae, semantic = config["vae_config"], config.get("semantic_config", {})
    return ModelConfig(
        body=_blocks(config["llm_config"], num_layers=config["llm_config"]["num_hidden_layers"]),
        head=_blocks(config["diffusion_head_config"], num_layers=config["num_diffusion_layers"]),
        decoder=DecoderConfig(
            num_levels=len(vae["dim_mult"]),
            num_blocks=vae["num_res_blocks"] + 1,
            latent_mean=tuple(vae["latent_mean"]),
            latent_std=tuple(vae["latent_std"]),
        ),
        semantic=SemanticConfig(
            num_layers=config["num_semantic_layers"],
            num_heads=semantic.get("num_attention_heads", 0),
            norm_eps=semantic.get("layer_norm_eps", 0.0),
        ),
        latent_channels=config["image_latent_dim"],
        latent_height=config["image_latent_height"],
        latent_width=config["image_latent_width"],
        patch_size=config["patch_size"],
        time_shift=config["time_shifting_factor"],
        max_positions=config["llm_config"]["max_position_embeddings"],
        begin_token_id=config["bos_token_id"],
        begin_image_token_id=config["boi_token_id"],
    )


def load_weights(model_dir: Path) -> dict[str, Tensor]:
    """Tensors of body and head by their name in the checkpoint, bf16, memory-mapped until they are first read."""
    return load_file(model_dir / WEIGHTS_DIR / "model.safetensors")


def load_decoder_weights(model_dir: Path) -> dict[str, Tensor]:
    """Tensors of the VAE by their name in its checkpoint."""
    return load_file(model_dir / WEIGHTS_DIR / "vae.safetensors")


def _blocks(config: Mapping[str, Any], *, num_layers: int) -> BlockConfig:
    return BlockConfig(
        num_layers=num_layers,
        hidden_size=config["hidden_size"],
        num_heads=config["num_attention_heads"],
        num_kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        norm_eps=config["rms_norm_eps"],
        rope_theta=config["rope_theta"],
        rope_scaling=config.get("rope_scaling"),
    )
