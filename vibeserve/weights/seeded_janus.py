"""A seeded random model of the Janus shape, in transformers' layout. Child process only.

The tensors are drawn by name and shape: `model.safetensors` holds what an image is drawn with, under the names of
`JanusForConditionalGeneration`: the Llama body, the embeddings and the head of image tokens, and the decoder of the
VQ model. What only reads images (vision encoder, its aligner, the VQ model's encoder) and what only writes text (the
output matrix) is not there. Images of random weights mean nothing. Their tokens depend on every layer, on every word,
on the seed and on the guidance by far more than on rounding to bf16.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from vibeserve.errors import WeightsError
from vibeserve.weights.seeded import train_tokenizer, wrap_tokenizer
from vibeserve.weights.seeded_image import (
    BEGIN_IMAGE_TOKEN_ID,
    BEGIN_TOKEN_ID,
    BIAS_STD,
    BODY_KEYS,
    BRANCH_ENDS,
    Shapes,
    affine_shapes,
    layer_shapes,
    on_grid,
    refuse_undrawn,
    write_folders,
)

ARCHITECTURE = "janus"
PAD_TOKEN_ID = 0
"""of every row but the first and the last of the text without a prompt; the trained tokenizer's first special token"""
CODE_KEYS = ("num_codes", "vq_latent_channels", "vq_base_channels", "vq_channel_multiplier", "vq_num_res_blocks")
BODY, VQ = "model.language_model.", "model.vqmodel."
HEAD_LAYERS = 2
"""`vq_config.num_hidden_layers`: of what makes a code's embedding a row of the body"""
NORM_GROUPS = 32
"""of the VQ model's group norms: its channels are multiples of it"""
GAINS = {
    "q_proj": 1.6, "k_proj": 1.6, "v_proj": 1.6, "down_proj": 2.0, "generation_aligner.hidden_layers": 1.5,
    "vision_head": 0.6, "post_quant_conv": math.sqrt(8), "decoder.conv_out": 0.8,
}  # fmt: skip
"""part of a name -> factor of the standard deviation. Guided logits are then about as wide as the noise that is added
to them, so that codes depend on both; wider ones make temperature and guidance count less, and rounding more"""


def write_seeded_janus(
    destination: Path, *, architecture: str, seed: int, config: Mapping[str, Any], head: Mapping[str, Any]
) -> int:
    """`f32/` and `bf16/` below `destination`; returns the number of parameters but for the decoder's.

    `head`: the spec's `model.image_head`. A pure function of the arguments and the library versions; all values lie on
    the bf16 grid. WeightsError for another architecture and for sizes that do not fit together.
    """
    refuse_undrawn(architecture, head, valid=(ARCHITECTURE, "tokens"))
    document = config_document(config, head)
    text = document["text_config"]
    tokenizer = wrap_tokenizer(train_tokenizer(text["vocab_size"]), max_tokens=text["max_position_embeddings"])
    generator = torch.Generator().manual_seed(seed)
    num_layers = text["num_hidden_layers"]
    shapes = [*model_shapes(document), *vq_shapes(document)]
    tensors = {name: _drawn(name, shape, num_layers=num_layers, generator=generator) for name, shape in shapes}
    write_folders(destination, {"model": tensors}, document=document, save_tokenizer=tokenizer.save_pretrained)
    return sum(math.prod(shape) for _, shape in model_shapes(document))


def config_document(config: Mapping[str, Any], head: Mapping[str, Any]) -> dict[str, Any]:
    """`config.json`: transformers' keys of Janus, and what its generation configuration says."""
    valid = (*BODY_KEYS, *CODE_KEYS)
    unknown = sorted(name for name in config if name not in valid)
    absent = sorted(name for name in valid if name not in config)
    if unknown or absent:
        what = f"{', '.join(unknown)} unknown" if unknown else f"{', '.join(absent)} missing"
        raise WeightsError(f"model.source.config: {what}; '{ARCHITECTURE}' has {', '.join(valid)}")
    body = {name: int(config[name]) for name in BODY_KEYS}
    multiplier = [int(factor) for factor in config["vq_channel_multiplier"]]
    problems = _problems(head, body, multiplier=multiplier, base=int(config["vq_base_channels"]))
    if problems:
        raise WeightsError(f"model.image_head: {'; '.join(problems)}")
    return {
        "model_type": ARCHITECTURE,
        "bos_token_id": BEGIN_TOKEN_ID,
        "boi_token_id": BEGIN_IMAGE_TOKEN_ID,
        "pad_token_id": PAD_TOKEN_ID,
        "prompt_template": "{prompt}",
        "tie_word_embeddings": True,
        "text_config": {**body, "model_type": "llama", "rms_norm_eps": 1e-6, "rope_theta": 10000.0},
        "vision_config": {
            "image_size": head["image_size_px"], "patch_size": head["image_size_px"] // head["latent_height"],
            "num_image_tokens": head["num_tokens"],
        },
        "vq_config": {
            "embed_dim": head["latent_channels"], "num_embeddings": int(config["num_codes"]),
            "latent_channels": int(config["vq_latent_channels"]), "base_channels": int(config["vq_base_channels"]),
            "channel_multiplier": multiplier, "num_res_blocks": int(config["vq_num_res_blocks"]),
            "num_hidden_layers": HEAD_LAYERS, "projection_dim": body["hidden_size"],
            "image_token_embed_dim": body["hidden_size"], "num_patches": head["latent_height"],
        },
    }  # fmt: skip


def _problems(head: Mapping[str, Any], body: Mapping[str, int], *, multiplier: list[int], base: int) -> list[str]:
    height, width = head["latent_height"], head["latent_width"]
    scale = 1 << (len(multiplier) - 1)
    found = []
    if height != width or head["num_tokens"] != height * width:
        found.append(f"num_tokens {head['num_tokens']} is not that of a square of {height} x {width}")
    if head["image_size_px"] != scale * height:
        found.append(f"image_size_px {head['image_size_px']} is not {scale} times latent_height {height}")
    if any(base * factor % NORM_GROUPS for factor in multiplier):
        found.append(f"vq_base_channels {base} times vq_channel_multiplier is no multiple of {NORM_GROUPS}")
    if body["num_attention_heads"] % body["num_key_value_heads"]:
        found.append("heads are no multiple of the heads of keys and values")
    return found


def model_shapes(document: Mapping[str, Any]) -> Shapes:
    """Body, embeddings of codes, and the head that scores them, in order."""
    text, codes = document["text_config"], document["vq_config"]
    hidden, wide = text["hidden_size"], codes["projection_dim"]
    yield f"{BODY}embed_tokens.weight", (text["vocab_size"], hidden)
    for number in range(text["num_hidden_layers"]):
        yield from layer_shapes(f"{BODY}layers.{number}.", text, has_bias=False)
    yield f"{BODY}norm.weight", (hidden,)
    yield "model.generation_embeddings.weight", (codes["num_embeddings"], codes["embed_dim"])
    yield from affine_shapes("model.generation_aligner.fc1", (wide, codes["embed_dim"]))
    for number in range(codes["num_hidden_layers"] - 1):
        yield from affine_shapes(f"model.generation_aligner.hidden_layers.{number}", (wide, wide))
    yield from affine_shapes("model.generation_head.proj_out", (wide, codes["image_token_embed_dim"]))
    yield from affine_shapes("model.generation_head.vision_head", (codes["num_embeddings"], wide))


def vq_shapes(document: Mapping[str, Any]) -> Shapes:
    """Codes to pixels. Levels go from the coarsest, whose blocks are followed by attention, to the finest."""
    codes = document["vq_config"]
    channels, num_blocks = codes["latent_channels"], codes["num_res_blocks"] + 1
    widths = [codes["base_channels"] * factor for factor in reversed(codes["channel_multiplier"])]
    yield f"{VQ}quantize.embedding.weight", (codes["num_embeddings"], codes["embed_dim"])
    yield from affine_shapes(f"{VQ}post_quant_conv", (channels, codes["embed_dim"], 1, 1))
    yield from affine_shapes(f"{VQ}decoder.conv_in", (widths[0], channels, 3, 3))
    yield from _block_shapes(f"{VQ}decoder.mid.block_1.", widths[0], widths[0])
    yield from _attention_shapes(f"{VQ}decoder.mid.attn_1.", widths[0])
    yield from _block_shapes(f"{VQ}decoder.mid.block_2.", widths[0], widths[0])
    given = widths[0]
    for level, width in enumerate(widths):
        name = f"{VQ}decoder.up.{level}."
        for number in range(num_blocks):
            yield from _block_shapes(f"{name}block.{number}.", given, width)
            given = width
            if level == 0:
                yield from _attention_shapes(f"{name}attn.{number}.", width)
        if level < len(widths) - 1:
            yield from affine_shapes(f"{name}upsample.conv", (width, width, 3, 3))
    yield from affine_shapes(f"{VQ}decoder.norm_out", (given,))
    yield from affine_shapes(f"{VQ}decoder.conv_out", (3, given, 3, 3))


def _block_shapes(name: str, given: int, width: int) -> Shapes:
    yield from affine_shapes(f"{name}norm1", (given,))
    yield from affine_shapes(f"{name}conv1", (width, given, 3, 3))
    yield from affine_shapes(f"{name}norm2", (width,))
    yield from affine_shapes(f"{name}conv2", (width, width, 3, 3))
    if given != width:
        yield from affine_shapes(f"{name}nin_shortcut", (width, given, 1, 1))


def _attention_shapes(name: str, width: int) -> Shapes:
    yield from affine_shapes(f"{name}norm", (width,))
    for part in ("q", "k", "v", "proj_out"):
        yield from affine_shapes(f"{name}{part}", (width, width, 1, 1))


def _drawn(name: str, shape: tuple[int, ...], *, num_layers: int, generator: torch.Generator) -> torch.Tensor:
    """Weights of norms are one; biases small; matrices keep the size of what they are given, times their gain."""
    is_norm_weight = "norm" in name and name.endswith(".weight")
    if is_norm_weight:
        return torch.ones(shape)
    values = torch.randn(shape, generator=generator)
    if name.endswith(("embed_tokens.weight", "embeddings.weight", "embedding.weight")):
        scale = 1.0
    elif name.endswith("bias"):
        scale = BIAS_STD
    else:
        scale = math.prod(gain for part, gain in GAINS.items() if part in name) / math.sqrt(math.prod(shape[1:]))
    if any(part in name for part in BRANCH_ENDS):
        scale *= min(1.0, math.sqrt(2 / num_layers))
    return on_grid(values * scale)
