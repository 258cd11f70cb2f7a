"""A user's own model of the Janus shape, in transformers' layout. Child process only.

`config.json` may leave out what transformers' classes have as defaults, as published ones do; it is written whole.
Ids of the begin, pad and begin-of-image tokens come from it or from `generation_config.json`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from vibeserve.errors import WeightsError
from vibeserve.weights.image_files import NEXT, checked, tokenizer_copier
from vibeserve.weights.seeded_image import write_folders
from vibeserve.weights.seeded_janus import model_shapes, vq_shapes

UNUSED = (
    "lm_head.", "model.vision_model.", "model.aligner.", "model.vqmodel.encoder.", "model.vqmodel.quant_conv.",
)  # fmt: skip
"""of what reads images, and of what writes text"""
CHAT_TEMPLATE = "<|User|>: {prompt}\n\n<|Assistant|>:"
"""what Janus-Pro was trained to draw after; of folders whose tokenizer has both marks and that name no template"""
TEXT_DEFAULTS = {
    "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
    "vocab_size": 32000, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
}  # fmt: skip
"""transformers' LlamaConfig"""
CODE_DEFAULTS = {
    "embed_dim": 8, "num_embeddings": 16384, "latent_channels": 256, "base_channels": 128,
    "channel_multiplier": [1, 1, 2, 2, 4], "num_res_blocks": 2, "projection_dim": 2048, "num_hidden_layers": 2,
    "image_token_embed_dim": 2048,
}  # fmt: skip
"""transformers' JanusVQVAEConfig"""
VISION_DEFAULTS = {"image_size": 384, "patch_size": 16}
"""transformers' JanusVisionConfig"""
TOKENS = ("bos_token_id", "pad_token_id", "boi_token_id")


def write_janus_folder(folder: Path, *, destination: Path) -> int:
    """`f32/` and `bf16/` below `destination`; returns the number of parameters but for the decoder's.

    WeightsError for a folder of another layout, with what is missing or of another shape.
    """
    if not (folder / "tokenizer.json").is_file():
        raise WeightsError(f"{folder}: no tokenizer.json\n{NEXT}")
    document = _document(folder)
    shapes = dict(model_shapes(document))
    tensors = checked(_tensors(folder), shapes | dict(vq_shapes(document)), folder=folder, unused=UNUSED)
    write_folders(destination, {"model": tensors}, document=document, save_tokenizer=tokenizer_copier(folder))
    return sum(tensor.numel() for name, tensor in tensors.items() if name in shapes)


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for path in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(path).items()}


def _document(folder: Path) -> dict[str, Any]:
    """The whole `config.json`."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        document = _completed(config, _token_ids(folder, config))
        dict(model_shapes(document)), dict(vq_shapes(document))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(f"{path}: {type(error).__name__}: {error}\n{NEXT}") from error
    return {**document, "prompt_template": config.get("prompt_template") or _template(folder)}


def _completed(config: Mapping[str, Any], token_ids: Mapping[str, int]) -> dict[str, Any]:
    text = {**TEXT_DEFAULTS, **_flat(config["text_config"])}
    text.setdefault("num_key_value_heads", text["num_attention_heads"])
    text["head_dim"] = text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"]
    if text.get("attention_bias") or text.get("mlp_bias"):
        raise ValueError("text_config: biases in attention or MLP are not implemented")
    scaling = text.get("rope_scaling")
    if scaling and scaling.get("rope_type", scaling.get("type")) != "llama3":
        raise ValueError("text_config.rope_scaling: only rope_type llama3 is implemented")
    codes = {**CODE_DEFAULTS, **config["vq_config"]}
    vision = {**VISION_DEFAULTS, **config["vision_config"]}
    side = vision["image_size"] // vision["patch_size"]
    kept = ("model_type", "rms_norm_eps", "rope_theta", "rope_scaling", "num_key_value_heads", "head_dim")
    return {
        "model_type": "janus", "tie_word_embeddings": True, **token_ids,
        "text_config": {name: text[name] for name in (*TEXT_DEFAULTS, *kept) if name in text},
        "vision_config": {**{name: vision[name] for name in VISION_DEFAULTS}, "num_image_tokens": side * side},
        "vq_config": {**{name: codes[name] for name in CODE_DEFAULTS}, "num_patches": side},
    }  # fmt: skip


def _flat(text: Mapping[str, Any]) -> dict[str, Any]:
    """transformers 5 nests what says how positions are rotated."""
    nested = dict(text.get("rope_parameters") or {})
    flat = {name: value for name, value in text.items() if name != "rope_parameters"}
    if "rope_theta" in nested:
        flat["rope_theta"] = nested.pop("rope_theta")
    if nested.get("rope_type", "default") != "default":
        flat["rope_scaling"] = nested
    return flat


def _token_ids(folder: Path, config: Mapping[str, Any]) -> dict[str, int]:
    """Of `config.json`, else of `generation_config.json`, which has the last one in `generation_kwargs`."""
    path = folder / "generation_config.json"
    generation = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    known = {**generation, **(generation.get("generation_kwargs") or {})}
    known |= {name: config[name] for name in TOKENS if config.get(name) is not None}
    absent = [name for name in TOKENS if not isinstance(known.get(name), int)]
    if absent:
        raise ValueError(f"no {', '.join(absent)}, and none in generation_config.json")
    return {name: known[name] for name in TOKENS}


def _template(folder: Path) -> str:
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    marks = {token.get("content") for token in tokenizer.get("added_tokens", [])}
    return CHAT_TEMPLATE if {"<|User|>", "<|Assistant|>"} <= marks else "{prompt}"
