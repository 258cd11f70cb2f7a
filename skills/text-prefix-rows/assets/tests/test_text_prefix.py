"""The text's rows go through the model once; every step has the image's rows alone."""

from __future__ import annotations

import pytest
import torch
from runtime.blocks import Block
from runtime.interfaces import ModelConfig
from runtime.model import Model


def test_a_step_computes_the_images_rows_alone(
    model: Model, config: ModelConfig, latents: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    project = Block.project

    def counted(block: Block, x: torch.Tensor, *rest: object) -> object:
        seen.append(x.shape[0] * x.shape[1])
        return project(block, x, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Block, "project", counted)
    num_blocks = config.body.num_layers + config.head.num_layers
    with torch.inference_mode():
        state = model.open(range(300, 320))
        assert seen == [22] * num_blocks
        seen.clear()
        model.velocities([state], latents, time=0.5)
    num_patches = config.latent_height * config.latent_width // config.patch_size**2
    assert seen == [1 + num_patches] * num_blocks


@torch.inference_mode()
def test_steps_leave_what_is_kept_as_it_is(model: Model, latents: torch.Tensor) -> None:
    state = model.open((300, 301, 302))
    before = [tensor.clone() for pair in state.kept for tensor in pair]
    model.velocities([state], latents, time=0.1)
    for old, new in zip(before, [tensor for pair in state.kept for tensor in pair], strict=True):
        assert torch.equal(old, new)
