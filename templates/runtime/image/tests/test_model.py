"""Velocities are those of the network's definition, whatever a model keeps and batches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from plain_network import plain_velocity
from runtime.model import Model

PROMPTS: tuple[tuple[int, ...], ...] = (tuple(range(300, 320)), (), (17, 400, 5))
TOLERANCE = 0.02
"""relative: components may compute in bf16; what is wrong is off by more (`test_the_prompt_counts`)"""


def relative(found: torch.Tensor, right: torch.Tensor) -> float:
    return float((found - right).norm() / right.norm())


@torch.inference_mode()
def velocities(
    model: Model, prompts: Sequence[Sequence[int]], latents: torch.Tensor, *, time: float
) -> list[torch.Tensor]:
    return model.velocities([model.open(each) for each in prompts], latents, time=time)


@pytest.mark.parametrize("time", [0.0, 0.3, 0.95])
def test_velocities_are_those_of_the_definition(
    model: Model, model_dir: Path, tensors: dict[str, torch.Tensor], latents: torch.Tensor, time: float
) -> None:
    config = json.loads((model_dir / "bf16" / "config.json").read_text())
    for prompt, found in zip(PROMPTS, velocities(model, PROMPTS, latents, time=time), strict=True):
        right = plain_velocity(tensors, config, prompt, latents, time=time)
        assert found.dtype == torch.float32 and found.shape == latents.shape
        assert relative(found, right) < TOLERANCE


def test_branches_do_not_change_each_other(model: Model, latents: torch.Tensor) -> None:
    together = velocities(model, PROMPTS, latents, time=0.4)
    for prompt, found in zip(PROMPTS, together, strict=True):
        (alone,) = velocities(model, [prompt], latents, time=0.4)
        assert relative(found, alone) < TOLERANCE


def test_a_state_serves_every_step_and_size(model: Model, latents: torch.Tensor) -> None:
    with torch.inference_mode():
        state = model.open(PROMPTS[0])
        first = model.velocities([state], latents, time=0.2)[0]
        model.velocities([state], latents[:, :4, :4], time=0.9)
        again = model.velocities([state], latents, time=0.2)[0]
    assert torch.equal(first, again)


def test_the_prompt_counts(model: Model, latents: torch.Tensor) -> None:
    """A negative control: other words, their order, and time and latents give other velocities."""
    right = velocities(model, [PROMPTS[0]], latents, time=0.4)[0]
    for prompt, x, time in (
        (PROMPTS[0][::-1], latents, 0.4), (PROMPTS[0][:-1], latents, 0.4), (PROMPTS[0], latents, 0.7),
        (PROMPTS[0], latents.flip(2), 0.4),
    ):  # fmt: skip
        assert relative(velocities(model, [prompt], x, time=time)[0], right) > 2 * TOLERANCE
