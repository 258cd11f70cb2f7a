"""A seeded random model of the Show-o2 shape, in the published checkpoint's layout. Child process only.

transformers has no such class, so the tensors are drawn by name and shape: `model.safetensors` holds body, flow head
and projections under Show-o2's names, `vae.safetensors` the decoder under Wan2.1's, `config.json` all their sizes.
Images of random weights mean nothing. They depend on every layer, on every word, on the seed, on each step and on the
guidance by far more than on rounding to bf16 (`tests/modalities/test_image_faults.py`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from vibeserve.errors import WeightsError
from vibeserve.weights.seeded import train_tokenizer, wrap_tokenizer

ARCHITECTURE = "show_o2"
DRAWN = "show_o2 that draws by flow, janus that draws by tokens"
"""architectures that there are seeded weights of"""
BODY_KEYS = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "max_position_embeddings",
)  # fmt: skip
VAE_KEYS = ("vae_dim", "vae_num_res_blocks")
VAE_DIM_MULT = (1, 2, 4, 4)
"""channels by level, the finest first: three levels are upsampled, so that a latent pixel is 8 x 8 pixels"""
PIXELS_PER_LATENT = 8
BEGIN_TOKEN_ID, BEGIN_IMAGE_TOKEN_ID = 1, 2
FREQUENCY_DIM = 256
"""sinusoids of the time"""
MAX_PERIOD = 10000.0
BODY_THETA, HEAD_THETA = 1000000.0, 500000.0
HEAD_SCALING = {
    "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}  # fmt: skip
"""rope of the published head"""
TIME_SHIFT = 3.0
"""`time_shifting_factor` of the published inference configuration"""
GAINS = {
    "q_proj": 1.2, "k_proj": 1.2, "v_proj": 1.2, "down_proj": 2.0, "adaLN_modulation": 0.5,
    "diffusion_head_b.linear": 0.3, "time_embed.mlp.0": 20.0, "time_embed.mlp.2": 4.0, "decoder.head.2": 0.8,
}  # fmt: skip
"""part of a name -> factor of the standard deviation. A velocity that is small beside the noise does not blow rounding
up over the steps; one that turns several times between noise and image, by its time embedding, makes steps count"""
BIAS_STD = 0.2
TIME_EMBEDDING = ("time_embed.mlp.0", "time_embed.mlp.2")
NUM_FAST = 16
"""sinusoids, the fastest, that the time embedding reads: the slow ones are constant, and bring rounding alone"""
BRANCH_ENDS = ("o_proj", "down_proj")

Shapes = Iterator[tuple[str, tuple[int, ...]]]


def write_seeded_image(
    destination: Path, *, architecture: str, seed: int, config: Mapping[str, Any], head: Mapping[str, Any]
) -> int:
    """`f32/` and `bf16/` below `destination`; returns the number of parameters but for the decoder's.

    `head`: the spec's `model.image_head`. A pure function of the arguments and the library versions; all values lie on
    the bf16 grid. WeightsError for another architecture and for sizes that do not fit together.
    """
    refuse_undrawn(architecture, head, valid=(ARCHITECTURE, "flow"))
    document = config_document(config, head)
    tokenizer = wrap_tokenizer(
        train_tokenizer(document["llm_config"]["vocab_size"]),
        max_tokens=document["llm_config"]["max_position_embeddings"],
    )
    generator = torch.Generator().manual_seed(seed)
    num_layers = document["llm_config"]["num_hidden_layers"]
    tensors = {
        name: _drawn(name, shape, num_layers=num_layers, generator=generator) for name, shape in model_shapes(document)
    }
    _set_turns(tensors, generator=generator)
    decoder = {
        name: _drawn(name, shape, num_layers=num_layers, generator=generator) for name, shape in vae_shapes(document)
    }
    parts = {"model": tensors, "vae": decoder}
    write_folders(destination, parts, document=document, save_tokenizer=tokenizer.save_pretrained)
    return sum(tensor.numel() for tensor in tensors.values())


def refuse_undrawn(architecture: str, head: Mapping[str, Any], *, valid: tuple[str, str]) -> None:
    """WeightsError unless (architecture, kind of head) is `valid`."""
    if (architecture, head["kind"]) != valid:
        raise WeightsError(
            f"model.architecture: no seeded weights of '{architecture}' that draws by "
            f"{head['kind'] or '(nothing)'}; valid: {DRAWN}"
        )


def write_folders(
    destination: Path, parts: Mapping[str, Mapping[str, torch.Tensor]], *, document: Mapping[str, Any],
    save_tokenizer: Callable[[Path], Any],
) -> None:  # fmt: skip
    """`f32/` and `bf16/` below `destination`: a file of tensors for each part, `config.json`, and the tokenizer's."""
    for folder, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16)):
        place = destination / folder
        place.mkdir(parents=True)
        for part, tensors in parts.items():
            converted = {name: tensor.to(dtype).contiguous() for name, tensor in tensors.items()}
            save_file(converted, place / f"{part}.safetensors")
        (place / "config.json").write_text(json.dumps(document, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        save_tokenizer(place)


def config_document(config: Mapping[str, Any], head: Mapping[str, Any]) -> dict[str, Any]:
    """`config.json`: Show-o2's own keys, and the configurations that it names elsewhere in full."""
    valid = (*BODY_KEYS, *VAE_KEYS)
    unknown = sorted(name for name in config if name not in valid)
    absent = sorted(name for name in valid if name not in config)
    if unknown or absent:
        what = f"{', '.join(unknown)} unknown" if unknown else f"{', '.join(absent)} missing"
        raise WeightsError(f"model.source.config: {what}; '{ARCHITECTURE}' has {', '.join(valid)}")
    body = {name: int(config[name]) for name in BODY_KEYS}
    problems = _problems(head, body)
    if problems:
        raise WeightsError(f"model.image_head: {'; '.join(problems)}")
    return {
        "model_type": ARCHITECTURE,
        "image_latent_dim": head["latent_channels"],
        "image_latent_height": head["latent_height"],
        "image_latent_width": head["latent_width"],
        "patch_size": head["patch_size"],
        "hidden_size": body["hidden_size"],
        "num_diffusion_layers": head["num_layers"],
        "num_semantic_layers": 0,
        "add_time_embeds": True,
        "time_shifting_factor": TIME_SHIFT,
        "bos_token_id": BEGIN_TOKEN_ID,
        "boi_token_id": BEGIN_IMAGE_TOKEN_ID,
        "llm_config": {**body, "rms_norm_eps": 1e-6, "rope_theta": BODY_THETA},
        "diffusion_head_config": {
            "hidden_size": head["hidden_size"], "intermediate_size": head["intermediate_size"],
            "num_attention_heads": head["num_heads"], "num_key_value_heads": head["num_kv_heads"],
            "head_dim": head["head_dim"], "rms_norm_eps": 1e-5, "rope_theta": HEAD_THETA, "rope_scaling": HEAD_SCALING,
        },
        "vae_config": {
            "dim": int(config["vae_dim"]), "z_dim": head["latent_channels"], "dim_mult": list(VAE_DIM_MULT),
            "num_res_blocks": int(config["vae_num_res_blocks"]),
            "latent_mean": [round(0.1 * math.sin(n), 3) for n in range(head["latent_channels"])],
            "latent_std": [round(1 + 0.2 * math.cos(n), 3) for n in range(head["latent_channels"])],
        },
    }  # fmt: skip


def _problems(head: Mapping[str, Any], body: Mapping[str, int]) -> list[str]:
    patch, height, width = head["patch_size"], head["latent_height"], head["latent_width"]
    found = []
    if height % patch or width % patch or head["num_tokens"] != (height // patch) * (width // patch):
        found.append(f"num_tokens {head['num_tokens']} is not that of {height} x {width} latents in patches of {patch}")
    if head["image_size_px"] != PIXELS_PER_LATENT * height:
        found.append(f"image_size_px {head['image_size_px']} is not {PIXELS_PER_LATENT} times latent_height {height}")
    if head["head_dim"] * head["num_heads"] != head["hidden_size"]:
        found.append("head_dim times num_heads is not hidden_size")
    if body["num_attention_heads"] % body["num_key_value_heads"] or head["num_heads"] % head["num_kv_heads"]:
        found.append("heads are no multiple of the heads of keys and values")
    return found


def model_shapes(document: Mapping[str, Any]) -> Shapes:
    """Body, projections and flow head, in order."""
    body, head = document["llm_config"], document["diffusion_head_config"]
    hidden, wide = body["hidden_size"], head["hidden_size"]
    patch, channels = document["patch_size"], document["image_latent_dim"]
    yield "showo.model.embed_tokens.weight", (body["vocab_size"], hidden)
    for number in range(body["num_hidden_layers"]):
        yield from layer_shapes(f"showo.model.layers.{number}.", body, has_bias=True)
    yield "showo.model.norm.weight", (hidden,)
    yield from affine_shapes("image_embedder_gen.proj", (hidden, channels, patch, patch))
    meaning = document["clip_latent_dim"] if document["num_semantic_layers"] else 0
    if meaning:
        yield from _semantic_shapes(document)
    yield "fusion_proj.0.weight", (meaning + hidden,)
    yield from affine_shapes("fusion_proj.1", (hidden, meaning + hidden))
    yield from affine_shapes("fusion_proj.3", (hidden, hidden))
    yield from affine_shapes("time_embed.mlp.0", (wide, FREQUENCY_DIM))
    yield from affine_shapes("time_embed.mlp.2", (wide, wide))
    if wide != hidden:
        yield from affine_shapes("diff_proj.0", (wide, hidden))
        yield from affine_shapes("diff_proj.2", (wide, wide))
        yield from affine_shapes("time_embed_proj", (hidden, wide))
    for number in range(document["num_diffusion_layers"]):
        name = f"diffusion_head_a.{number}."
        yield from layer_shapes(name, head, has_bias=False)
        yield f"{name}self_attn.q_norm.weight", (head["head_dim"],)
        yield f"{name}self_attn.k_norm.weight", (head["head_dim"],)
        yield from affine_shapes(f"{name}adaLN_modulation.1", (6 * wide, wide))
    yield "diffusion_head_b.norm_final.weight", (wide,)
    yield from affine_shapes("diffusion_head_b.linear", (patch * patch * channels, wide))
    yield from affine_shapes("diffusion_head_b.adaLN_modulation.1", (2 * wide, wide))


def layer_shapes(name: str, sizes: Mapping[str, Any], *, has_bias: bool) -> Shapes:
    hidden, wide, dim = sizes["hidden_size"], sizes["intermediate_size"], sizes["head_dim"]
    heads, groups = sizes["num_attention_heads"], sizes["num_key_value_heads"]
    for part, num in (("q", heads), ("k", groups), ("v", groups)):
        shapes = affine_shapes(f"{name}self_attn.{part}_proj", (num * dim, hidden))
        yield from (item for item in shapes if has_bias or item[0].endswith("weight"))
    yield f"{name}self_attn.o_proj.weight", (hidden, heads * dim)
    yield f"{name}mlp.gate_proj.weight", (wide, hidden)
    yield f"{name}mlp.up_proj.weight", (wide, hidden)
    yield f"{name}mlp.down_proj.weight", (hidden, wide)
    yield f"{name}input_layernorm.weight", (hidden,)
    yield f"{name}post_attention_layernorm.weight", (hidden,)


def _semantic_shapes(document: Mapping[str, Any]) -> Shapes:
    """SigLIP's layers, and what makes rows of latents for them."""
    width, wide = document["clip_latent_dim"], document["semantic_config"]["intermediate_size"]
    patch, channels = document["patch_size"], document["image_latent_dim"]
    num_patches = document["image_latent_height"] * document["image_latent_width"] // patch**2
    yield from affine_shapes("image_embedder_und.proj", (width, channels, patch, patch))
    yield "position_embedding.weight", (num_patches, width)
    for number in range(document["num_semantic_layers"]):
        name = f"und_trans.layers.{number}."
        for part in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"):
            yield from affine_shapes(f"{name}{part}", (width, width))
        yield from affine_shapes(f"{name}mlp.fc1", (wide, width))
        yield from affine_shapes(f"{name}mlp.fc2", (width, wide))
        for part in ("layer_norm1", "layer_norm2"):
            yield from affine_shapes(f"{name}{part}", (width,))


def vae_shapes(document: Mapping[str, Any]) -> Shapes:
    """The decoder of a video VAE: kernels are causal in time, and an image's only frame meets their last slice."""
    vae = document["vae_config"]
    dim, channels, num_blocks = vae["dim"], vae["z_dim"], vae["num_res_blocks"] + 1
    widths = [dim * factor for factor in (vae["dim_mult"][-1], *vae["dim_mult"][::-1])]
    yield from affine_shapes("conv2", (channels, channels, 1, 1, 1))
    yield from affine_shapes("decoder.conv1", (widths[0], channels, 3, 3, 3))
    yield from _block_shapes("decoder.middle.0.", widths[0], widths[0])
    yield "decoder.middle.1.norm.gamma", (widths[0], 1, 1)
    yield from affine_shapes("decoder.middle.1.to_qkv", (3 * widths[0], widths[0], 1, 1))
    yield from affine_shapes("decoder.middle.1.proj", (widths[0], widths[0], 1, 1))
    yield from _block_shapes("decoder.middle.2.", widths[0], widths[0])
    place = 0
    for level, width in enumerate(widths[1:]):
        given = widths[level] // 2 if level else widths[level]
        for _ in range(num_blocks):
            yield from _block_shapes(f"decoder.upsamples.{place}.", given, width)
            given, place = width, place + 1
        if level < len(widths) - 2:
            yield from affine_shapes(f"decoder.upsamples.{place}.resample.1", (width // 2, width, 3, 3))
            place += 1
    yield "decoder.head.0.gamma", (widths[-1], 1, 1, 1)
    yield from affine_shapes("decoder.head.2", (3, widths[-1], 3, 3, 3))


def _block_shapes(name: str, given: int, width: int) -> Shapes:
    yield f"{name}residual.0.gamma", (given, 1, 1, 1)
    yield from affine_shapes(f"{name}residual.2", (width, given, 3, 3, 3))
    yield f"{name}residual.3.gamma", (width, 1, 1, 1)
    yield from affine_shapes(f"{name}residual.6", (width, width, 3, 3, 3))
    if given != width:
        yield from affine_shapes(f"{name}shortcut", (width, given, 1, 1, 1))


def affine_shapes(name: str, shape: tuple[int, ...]) -> Shapes:
    """A weight, and a bias as long as its first side."""
    yield f"{name}.weight", shape
    yield f"{name}.bias", (shape[0],)


def _drawn(name: str, shape: tuple[int, ...], *, num_layers: int, generator: torch.Generator) -> torch.Tensor:
    """Norms are one; biases small; matrices keep the size of what they are given, times their gain."""
    is_norm = "norm" in name or name.endswith(("gamma", "fusion_proj.0.weight"))
    if is_norm:
        return torch.ones(shape)
    values = torch.randn(shape, generator=generator)
    if name.endswith("embed_tokens.weight"):
        scale = 1.0
    elif name.endswith("bias"):
        scale = BIAS_STD
    else:
        # of a kernel that is causal in time only the last slice meets an image
        fan_in = math.prod(shape[1:]) / (shape[2] if len(shape) == 5 else 1)
        scale = math.prod(gain for part, gain in GAINS.items() if part in name) / math.sqrt(fan_in)
    if any(part in name for part in BRANCH_ENDS):
        scale *= min(1.0, math.sqrt(2 / num_layers))
    return on_grid(values * scale)


def _set_turns(tensors: dict[str, torch.Tensor], *, generator: torch.Generator) -> None:
    """Biases with which each unit of the time embedding turns its sign at some time between noise and image."""
    half = FREQUENCY_DIM // 2
    frequencies = torch.exp(-math.log(MAX_PERIOD) * torch.arange(half) / half)

    def sinusoids(times: torch.Tensor) -> torch.Tensor:
        angles = times[:, None] * frequencies
        return torch.cat((angles.cos(), angles.sin()), dim=1)

    fast = torch.zeros(FREQUENCY_DIM)
    fast[:NUM_FAST] = fast[half : half + NUM_FAST] = math.sqrt(half / NUM_FAST)
    tensors["time_embed.mlp.0.weight"] = on_grid(tensors["time_embed.mlp.0.weight"] * fast)
    (first, second), biases = (tensors[f"{name}.weight"] for name in TIME_EMBEDDING), []
    biases.append(-(first * sinusoids(torch.rand(len(first), generator=generator))).sum(1))
    inner = sinusoids(torch.rand(len(second), generator=generator)) @ first.T + biases[0]
    biases.append(-(second * torch.nn.functional.silu(inner)).sum(1))
    for name, bias in zip(TIME_EMBEDDING, biases, strict=True):
        tensors[f"{name}.bias"] = on_grid(bias)


def on_grid(values: torch.Tensor) -> torch.Tensor:
    return values.to(torch.bfloat16).to(torch.float32)
