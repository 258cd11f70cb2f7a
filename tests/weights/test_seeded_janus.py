"""Seeded weights of models that draw token by token, and folders of a user's own: layout, sizes, refusals."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
from image_samples import image_model, tiny_janus_dir

from vibeserve.core.documents import to_data
from vibeserve.errors import WeightsError


def document_of(config: dict[str, Any] | None = None, *, name: str = "tiny_janus", **head: Any) -> dict[str, Any]:
    from vibeserve.weights.seeded_janus import config_document

    model = image_model(name)
    return config_document(model.source.config | (config or {}), to_data(model.image_head) | head)


@pytest.mark.parametrize(
    ("config", "head", "told"),
    [
        ({"num_experts": 4}, {}, "num_experts unknown; 'janus' has hidden_size, "),
        ({}, {"num_tokens": 63}, "num_tokens 63 is not that of a square of 8 x 8"),
        ({}, {"latent_width": 4}, "is not that of a square of 8 x 4"),
        ({}, {"image_size_px": 60}, "image_size_px 60 is not 8 times latent_height 8"),
        ({"vq_base_channels": 48}, {}, "vq_base_channels 48 times vq_channel_multiplier is no multiple of 32"),
        ({"num_key_value_heads": 3}, {}, "heads are no multiple of the heads of keys and values"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(config: dict[str, Any], head: dict[str, Any], told: str) -> None:
    with pytest.raises(WeightsError) as caught:
        document_of(config, **head)
    assert told in str(caught.value)


@pytest.mark.parametrize(("architecture", "kind"), [("show_o2", "tokens"), ("janus", "flow")])
def test_other_ways_to_draw_are_refused(tmp_path: Path, architecture: str, kind: str) -> None:
    from vibeserve.weights.seeded_janus import write_seeded_janus

    with pytest.raises(WeightsError, match="valid: show_o2 that draws by flow, janus that draws by tokens"):
        write_seeded_janus(tmp_path, architecture=architecture, seed=0, config={}, head={"kind": kind})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["tiny_janus", "janus_small"])
def test_seeded_models_have_the_parameters_that_they_declare(name: str) -> None:
    from vibeserve.weights.seeded_janus import model_shapes

    shapes = model_shapes(document_of(name=name))
    assert sum(math.prod(shape) for _, shape in shapes) == image_model(name).num_parameters


def changed(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(tiny_janus_dir() / "bf16", tmp_path / "mine")


def write(folder: Path, destination: Path) -> int:
    from vibeserve.weights.image_folder import write_image_folder

    return write_image_folder(folder, destination=destination)


@pytest.mark.slow
def test_a_published_folder_becomes_what_seeded_weights_are(folder: Path, tmp_path: Path) -> None:
    """With tensors that only read images, ids in the generation's configuration, sizes left to their defaults."""
    import torch
    from safetensors.torch import load_file, save_file

    right = json.loads((folder / "config.json").read_text())
    extra = {"model.vision_model.x": torch.zeros(2), "lm_head.weight": torch.zeros(2)}
    save_file(load_file(folder / "model.safetensors") | extra, folder / "model.safetensors")
    ids = {name: right.pop(name) for name in ("bos_token_id", "pad_token_id", "boi_token_id")}
    kwargs = {"boi_token_id": ids.pop("boi_token_id")}
    (folder / "generation_config.json").write_text(json.dumps(ids | {"generation_kwargs": kwargs}))
    theta = right["text_config"].pop("rope_theta")
    right["text_config"] |= {"rope_parameters": {"rope_type": "default", "rope_theta": theta}}
    for name in ("rms_norm_eps", "head_dim"):
        del right["text_config"][name]
    del right["vq_config"]["num_hidden_layers"], right["vq_config"]["num_patches"], right["prompt_template"]
    (folder / "config.json").write_text(json.dumps(right))
    assert write(folder, tmp_path / "made") == 167168
    for name in ("f32", "bf16"):
        found = load_file(tmp_path / "made" / name / "model.safetensors")
        seeded = load_file(tiny_janus_dir() / name / "model.safetensors")
        assert set(found) == set(seeded)
        assert all(torch.equal(tensor, seeded[key]) for key, tensor in found.items())
    made = json.loads((tmp_path / "made/f32/config.json").read_text())
    assert made == json.loads((tiny_janus_dir() / "f32/config.json").read_text())


@pytest.mark.slow
def test_a_tokenizer_with_marks_of_speakers_brings_the_template(folder: Path, tmp_path: Path) -> None:
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    tokenizer["added_tokens"] += [{"content": mark} for mark in ("<|User|>", "<|Assistant|>")]
    path.write_text(json.dumps(tokenizer))
    for declared, told in ((None, "<|User|>: {prompt}\n\n<|Assistant|>:"), ("draw {prompt}", "draw {prompt}")):
        changed(folder, prompt_template=declared)
        write(folder, tmp_path / str(declared))
        assert json.loads((tmp_path / str(declared) / "f32/config.json").read_text())["prompt_template"] == told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"boi_token_id": None}, "no boi_token_id, and none in generation_config.json"),
        ({"text_config": None}, "docs/image.md has the layout"),
        ({"vq_config": {"embed_dim": 8}}, "missing: model.vqmodel."),
        ({"text_config": {"attention_bias": True}}, "biases in attention or MLP are not implemented"),
        ({"text_config": {"rope_scaling": {"rope_type": "yarn"}}}, "only rope_type llama3 is implemented"),
    ],
)
def test_other_configurations_are_refused(
    folder: Path, tmp_path: Path, changes: dict[str, Any], told: str
) -> None:  # fmt: skip
    changed(folder, **changes)
    with pytest.raises(WeightsError) as caught:
        write(folder, tmp_path / "made")
    assert told in str(caught.value)


@pytest.mark.slow
def test_a_folder_without_a_tokenizer_is_told_what_it_lacks(folder: Path, tmp_path: Path) -> None:
    (folder / "tokenizer.json").unlink()
    with pytest.raises(WeightsError, match=r"no tokenizer\.json\nnext: docs/image\.md"):
        write(folder, tmp_path / "made")
