"""Seeded weights of models that draw: what is refused, and what is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from image_samples import image_model, tiny_image_dir

from vibeserve.core.documents import to_data
from vibeserve.errors import WeightsError


def document_of(config: dict[str, Any] | None = None, **head: Any) -> dict[str, Any]:
    from vibeserve.weights.seeded_image import config_document

    model = image_model()
    return config_document(model.source.config | (config or {}), to_data(model.image_head) | head)


@pytest.mark.parametrize(
    ("config", "head", "told"),
    [
        ({"num_experts": 4}, {}, "num_experts unknown; 'show_o2' has hidden_size, "),
        ({}, {"num_tokens": 17}, "num_tokens 17 is not that of 8 x 8 latents in patches of 2"),
        ({}, {"patch_size": 3}, "latents in patches of 3"),
        ({}, {"image_size_px": 60}, "image_size_px 60 is not 8 times latent_height 8"),
        ({}, {"head_dim": 20}, "head_dim times num_heads is not hidden_size"),
        ({"num_key_value_heads": 3}, {}, "heads are no multiple of the heads of keys and values"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(config: dict[str, Any], head: dict[str, Any], told: str) -> None:
    with pytest.raises(WeightsError) as caught:
        document_of(config, **head)
    assert told in str(caught.value)


def test_a_size_that_is_missing_is_named() -> None:
    from vibeserve.weights.seeded_image import config_document

    model = image_model()
    config = {name: value for name, value in model.source.config.items() if name != "vae_dim"}
    with pytest.raises(WeightsError, match="vae_dim missing; 'show_o2' has"):
        config_document(config, to_data(model.image_head))


@pytest.mark.parametrize(("architecture", "kind"), [("janus", "flow"), ("show_o2", "tokens")])
def test_other_ways_to_draw_are_refused(tmp_path: Path, architecture: str, kind: str) -> None:
    from vibeserve.weights.seeded_image import write_seeded_image

    with pytest.raises(WeightsError, match="valid: show_o2 that draws by flow"):
        write_seeded_image(tmp_path, architecture=architecture, seed=0, config={}, head={"kind": kind})
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_both_folders_hold_the_same_values_in_the_published_layout() -> None:
    import torch
    from safetensors.torch import load_file

    folder = tiny_image_dir()
    names: dict[str, set[str]] = {}
    for file in ("model.safetensors", "vae.safetensors"):
        exact, rounded = load_file(folder / "f32" / file), load_file(folder / "bf16" / file)
        names[file] = set(exact)
        assert {tensor.dtype for tensor in exact.values()} == {torch.float32}
        assert all(torch.equal(tensor.float(), exact[name]) for name, tensor in rounded.items())
    assert {
        "showo.model.layers.1.self_attn.q_proj.bias", "diffusion_head_a.0.adaLN_modulation.1.weight",
        "diffusion_head_b.linear.weight", "time_embed_proj.weight", "diff_proj.2.bias", "fusion_proj.3.weight",
    } <= names["model.safetensors"]  # fmt: skip
    assert {"conv2.weight", "decoder.middle.1.to_qkv.weight", "decoder.head.2.bias"} <= names["vae.safetensors"]
    config = json.loads((folder / "bf16" / "config.json").read_text())
    assert (config["model_type"], config["llm_config"]["num_hidden_layers"]) == ("show_o2", 2)
