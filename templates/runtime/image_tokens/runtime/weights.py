"""Read the model's configuration and its bf16 weights from `{model_dir}/bf16`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from .interfaces import BlockConfig, DecoderConfig, ModelConfig

WEIGHTS_DIR = "bf16"
MODEL_TYPE = "janus"
DECODER = "model.vqmodel."


def load_config(model_dir: Path) -> ModelConfig:
    """Configuration of the model in `model_dir`; raises ValueError for what this runtime does not implement."""
    config = json.loads((model_dir / WEIGHTS_DIR / "config.json").read_text(encoding="utf-8"))
    if config.get("model_type") != MODEL_TYPE:
        raise ValueError(f"config.json: model_type '{config.get('model_type')}' is not supported; valid: {MODEL_TYPE}")
    text, codes = config["text_config"], config["vq_config"]
    return ModelConfig(
        body=BlockConfig(
            num_layers=text["num_hidden_layers"],
            hidden_size=text["hidden_size"],
            num_heads=text["num_attention_heads"],
            num_kv_heads=text["num_key_value_heads"],
            head_dim=text["head_dim"],
            norm_eps=text["rms_norm_eps"],
            rope_theta=text["rope_theta"],
            rope_scaling=text.get("rope_scaling"),
        ),
        decoder=DecoderConfig(num_levels=len(codes["channel_multiplier"]), num_blocks=codes["num_res_blocks"] + 1),
        num_codes=codes["num_embeddings"],
        side=codes["num_patches"],
        num_embedding_layers=codes["num_hidden_layers"],
        max_positions=text["max_position_embeddings"],
        begin_token_id=config["bos_token_id"],
        begin_image_token_id=config["boi_token_id"],
        pad_token_id=config["pad_token_id"],
        prompt_template=config["prompt_template"],
    )


def load_weights(model_dir: Path) -> dict[str, Tensor]:
    """Tensors of body, embeddings and head by their name in the checkpoint, bf16."""
    return _tensors(model_dir, lambda name: not name.startswith(DECODER))


def load_decoder_weights(model_dir: Path) -> dict[str, Tensor]:
    """Tensors of the VQ model's decoder by their name in the checkpoint."""
    return _tensors(model_dir, lambda name: name.startswith(DECODER))


def _tensors(model_dir: Path, is_wanted: Callable[[str], bool]) -> dict[str, Tensor]:
    with safe_open(model_dir / WEIGHTS_DIR / "model.safetensors", framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys() if is_wanted(name)}  # noqa: SIM118
