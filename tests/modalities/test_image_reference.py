"""The reference of images: its kept text is what the whole sequence gives, and every field of a request counts."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from image_samples import image_model, request_of, tiny_image_dir

from vibeserve.core.paths import data_dir

PLAIN = data_dir("templates") / "runtime/image/tests/plain_network.py"
"""the network written from its definition: whole sequences in f64, a head at a time"""


@pytest.fixture(scope="module")
def reference() -> Any:
    from vibeserve.modalities.image.reference import load

    return load(str(tiny_image_dir()), "cpu", "float32")


@pytest.mark.slow
def test_velocities_are_those_of_the_whole_sequence(reference: Any) -> None:
    import torch
    from safetensors.torch import load_file

    folder = tiny_image_dir() / "f32"
    config = json.loads((folder / "config.json").read_text())
    plain = runpy.run_path(str(PLAIN))["plain_velocity"]
    latents = torch.randn((4, 8, 8), generator=torch.Generator().manual_seed(1))
    for ids, time in (((5, 400, 17, 300), 0.0), ((), 0.6), (tuple(range(300, 330)), 0.9)):
        right = plain(load_file(folder / "model.safetensors"), config, ids, latents, time=time)
        found = reference._network.velocity(reference._network.prefix(ids), latents, time=time)
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_images_are_functions_of_their_requests(reference: Any) -> None:
    import numpy as np

    from vibeserve.modalities.image.wire import latents_of, pixels_of

    asked = {"size": "64x64", "steps": 4}
    right = reference.run(request_of(**asked))
    assert right == reference.run(request_of("another name", **asked))
    assert pixels_of(right["png"]).shape == (64, 64, 3) and latents_of(right["latents"]).shape == (4 * 8 * 8,)
    changes: tuple[dict[str, Any], ...] = (
        {"seed": 8}, {"steps": 5}, {"guidance": 3.5}, {"guidance": 1.0}, {"prompt": "a house by the lake"},
    )  # fmt: skip
    for change in changes:
        other = latents_of(reference.run(request_of(**(asked | change)))["latents"])
        error = np.linalg.norm(other - latents_of(right["latents"])) / np.linalg.norm(other)
        assert error > 0.06, change
    small = reference.run(request_of(**(asked | {"size": "32x16"})))
    assert pixels_of(small["png"]).shape == (16, 32, 3)


@pytest.mark.parametrize("name", ["tiny_image", "show_o2_small"])
def test_seeded_models_have_the_parameters_that_they_declare(name: str) -> None:
    import math

    from vibeserve.core.documents import to_data
    from vibeserve.weights.seeded_image import config_document, model_shapes

    model = image_model(name)
    document = config_document(model.source.config, to_data(model.image_head))
    assert sum(math.prod(shape) for _, shape in model_shapes(document)) == model.num_parameters


def test_a_grid_begins_with_the_noise_and_ends_with_the_image() -> None:
    from vibeserve.modalities.image.reference import noise_of, time_grid

    grid = time_grid(10, shift=3.0)
    assert (len(grid), grid[0], grid[-1]) == (11, 0.0, 1.0)
    assert grid == sorted(grid) and grid[5] == pytest.approx(0.25)
    noise = noise_of({"size": "128x64", "seed": 3}, channels=16)
    assert tuple(noise.shape) == (16, 8, 16)
    assert not noise.equal(noise_of({"size": "128x64", "seed": 4}, channels=16))


def test_the_definition_ships_with_the_scaffold() -> None:
    assert Path(PLAIN).is_file()


@pytest.mark.slow
def test_a_second_reading_of_the_latents_is_that_of_the_definition() -> None:
    """No shipped model has SigLIP's layers, as the published one does: random ones of its names and shapes."""
    import torch

    from vibeserve.core.documents import to_data
    from vibeserve.modalities.image.network import FlowNetwork
    from vibeserve.weights.seeded_image import config_document, model_shapes

    model = image_model()
    config = config_document(model.source.config, to_data(model.image_head)) | {
        "num_semantic_layers": 2, "clip_latent_dim": 24,
        "semantic_config": {"num_attention_heads": 3, "intermediate_size": 40, "layer_norm_eps": 1e-6},
    }  # fmt: skip
    draw = torch.Generator().manual_seed(2)
    tensors = {name: torch.randn(shape, generator=draw) / shape[-1] ** 0.5 for name, shape in model_shapes(config)}
    assert tensors["fusion_proj.1.weight"].shape == (64, 88)
    plain = runpy.run_path(str(PLAIN))["plain_velocity"]
    latents = torch.randn((4, 8, 8), generator=draw)
    network = FlowNetwork(tensors, config)
    found = network.velocity(network.prefix((5, 400)), latents, time=0.3)
    torch.testing.assert_close(found, plain(tensors, config, (5, 400), latents, time=0.3), rtol=1e-3, atol=1e-3)
