"""Models that read their latents a second time, through layers of their own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from plain_network import plain_velocity
from runtime.api import Api
from runtime.interfaces import ModelConfig, SemanticConfig
from runtime.model import Model
from runtime.parameters import Parameters
from runtime.protocol import ApiError
from runtime.tokenizer import Tokenizer

WIDTH, WIDE, NUM_LAYERS, NUM_HEADS, EPS = 24, 40, 2, 3, 1e-6
TOLERANCE = 0.02
SEMANTIC = SemanticConfig(num_layers=NUM_LAYERS, num_heads=NUM_HEADS, norm_eps=EPS)


@pytest.fixture(scope="module")
def widened(tensors: dict[str, torch.Tensor], config: ModelConfig) -> dict[str, torch.Tensor]:
    """The model's tensors, and random ones of such layers."""
    draw = torch.Generator().manual_seed(9)
    hidden, patch = config.body.hidden_size, config.patch_size
    num_patches = config.latent_height * config.latent_width // patch**2
    shapes = {
        "image_embedder_und.proj.weight": (WIDTH, config.latent_channels, patch, patch),
        "image_embedder_und.proj.bias": (WIDTH,),
        "position_embedding.weight": (num_patches, WIDTH),
        "fusion_proj.0.weight": (WIDTH + hidden,),
        "fusion_proj.1.weight": (hidden, WIDTH + hidden),
    }
    for number in range(NUM_LAYERS):
        name = f"und_trans.layers.{number}."
        for part in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"):
            shapes |= {f"{name}{part}.weight": (WIDTH, WIDTH), f"{name}{part}.bias": (WIDTH,)}
        shapes |= {f"{name}mlp.fc1.weight": (WIDE, WIDTH), f"{name}mlp.fc1.bias": (WIDE,)}
        shapes |= {f"{name}mlp.fc2.weight": (WIDTH, WIDE), f"{name}mlp.fc2.bias": (WIDTH,)}
        for part in ("layer_norm1", "layer_norm2"):
            shapes |= {f"{name}{part}.weight": (WIDTH,), f"{name}{part}.bias": (WIDTH,)}
    made = {name: torch.randn(shape, generator=draw) / shape[-1] ** 0.5 for name, shape in shapes.items()}
    return tensors | {name: tensor.bfloat16() for name, tensor in made.items()}


@torch.inference_mode()
def test_velocities_are_those_of_the_definition(
    widened: dict[str, torch.Tensor], config: ModelConfig, model_dir: Path, latents: torch.Tensor
) -> None:
    declared = json.loads((model_dir / "bf16" / "config.json").read_text())
    declared |= {
        "num_semantic_layers": NUM_LAYERS, "clip_latent_dim": WIDTH,
        "semantic_config": {"num_attention_heads": NUM_HEADS, "intermediate_size": WIDE, "layer_norm_eps": EPS},
    }  # fmt: skip
    model = Model(widened, config=replace(config, semantic=SEMANTIC), parameters=Parameters())
    for ids in ((300, 301, 17), ()):
        (found,) = model.velocities([model.open(ids)], latents, time=0.4)
        right = plain_velocity(widened, declared, ids, latents, time=0.4)
        assert float((found - right).norm() / right.norm()) < TOLERANCE


def test_such_a_model_draws_one_size(config: ModelConfig, model_dir: Path) -> None:
    api = Api(config=replace(config, semantic=SEMANTIC), tokenizer=Tokenizer(model_dir), parameters=Parameters())
    unit = config.patch_px
    with pytest.raises(ApiError, match="alone"):
        api.parse({"prompt": "a", "size": f"{unit}x{unit}"}, request_id="r")
    assert api.parse({"prompt": "a"}, request_id="r").width_px == 8 * config.latent_width
