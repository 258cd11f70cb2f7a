"""A user's own image model: the layout is read, and what it lacks is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from image_samples import tiny_image_dir

from vibeserve.errors import WeightsError

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return shutil.copytree(tiny_image_dir() / "bf16", tmp_path / "mine")


def write(folder: Path, destination: Path) -> int:
    from vibeserve.weights.image_folder import write_image_folder

    return write_image_folder(folder, destination=destination)


def changed(folder: Path, file: str, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the tensors of one file in place."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / file)
    change(tensors)
    save_file(tensors, folder / file)


def test_a_folder_becomes_what_seeded_weights_are(folder: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file

    changed(folder, "model.safetensors", lambda tensors: tensors.update({"showo.lm_head.weight": torch.zeros(2)}))
    changed(folder, "vae.safetensors", lambda tensors: tensors.update({"encoder.conv1.bias": torch.zeros(2)}))
    assert write(folder, tmp_path / "made") == 345952
    for name in ("f32", "bf16"):
        for file in ("model.safetensors", "vae.safetensors"):
            found = load_file(tmp_path / "made" / name / file)
            right = load_file(tiny_image_dir() / name / file)
            assert set(found) == set(right)
            assert all(torch.equal(tensor, right[key]) for key, tensor in found.items())
        assert (tmp_path / "made" / name / "tokenizer.json").is_file()


@pytest.mark.parametrize(
    ("file", "change", "told"),
    [
        ("model.safetensors", lambda tensors: tensors.pop("fusion_proj.3.bias"), "missing: fusion_proj.3.bias"),
        ("vae.safetensors", lambda tensors: tensors.pop("conv2.bias"), "missing: conv2.bias"),
        ("model.safetensors", lambda tensors: tensors.update(x=tensors["fusion_proj.3.bias"].clone()), "unknown: x"),
        (
            "model.safetensors",
            lambda tensors: tensors.update({"fusion_proj.3.bias": tensors["fusion_proj.3.bias"][:5].clone()}),
            r"other than config\.json says: fusion_proj\.3\.bias is \(5,\), not \(64,\)",
        ),
    ],
)
def test_tensors_that_are_not_as_declared_are_named(
    folder: Path, tmp_path: Path, file: str, change: Callable[[dict[str, Any]], Any], told: str
) -> None:
    changed(folder, file, change)
    with pytest.raises(WeightsError, match=told):
        write(folder, tmp_path / "made")


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("model_type", "qwen2", "model_type 'qwen2'; valid: show_o2"),
        ("num_semantic_layers", 26, "clip_latent_dim"),
        ("add_time_embeds", False, "without an embedding of the time are not implemented"),
        ("patch_size", None, "docs/image.md has the layout"),
    ],
)
def test_other_configurations_are_refused(folder: Path, tmp_path: Path, key: str, value: Any, told: str) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(WeightsError, match=told):
        write(folder, tmp_path / "made")


def test_a_folder_without_a_vae_is_told_what_it_lacks(folder: Path, tmp_path: Path) -> None:
    (folder / "vae.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"no vae\.safetensors\nnext: docs/image\.md"):
        write(folder, tmp_path / "made")
