"""Both branches of guidance pass the linear layers in one batch."""

from __future__ import annotations

import pytest
import torch
from runtime.blocks import Block
from runtime.interfaces import ModelConfig
from runtime.model import Model


@pytest.mark.parametrize("num_branches", [1, 2, 3])
def test_branches_share_every_pass(
    model: Model, config: ModelConfig, latents: torch.Tensor, monkeypatch: pytest.MonkeyPatch, num_branches: int
) -> None:
    shapes: list[tuple[int, int]] = []
    project = Block.project

    def counted(block: Block, x: torch.Tensor, *rest: object) -> object:
        shapes.append((x.shape[0], x.shape[1]))
        return project(block, x, *rest)  # type: ignore[arg-type]

    with torch.inference_mode():
        states = [model.open(range(300, 300 + 7 * number)) for number in range(num_branches)]
        monkeypatch.setattr(Block, "project", counted)
        found = model.velocities(states, latents, time=0.5)
    num_patches = config.latent_height * config.latent_width // config.patch_size**2
    assert shapes == [(num_branches, 1 + num_patches)] * (config.body.num_layers + config.head.num_layers)
    assert len(found) == num_branches


@torch.inference_mode()
def test_each_branch_sees_its_own_text(model: Model, latents: torch.Tensor) -> None:
    one, other = model.open(range(300, 330)), model.open((5, 6))
    pair = model.velocities([one, other], latents, time=0.5)
    turned = model.velocities([other, one], latents, time=0.5)
    torch.testing.assert_close(pair[0], turned[1], rtol=1e-2, atol=1e-2)
    assert (pair[0] - pair[1]).norm() > 0.1 * pair[0].norm()
