"""From noise to latents: Euler steps over a shifted grid of times, with classifier-free guidance."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .interfaces import PIXELS_PER_LATENT, Dropped, ModelConfig, ModelLike, Request


class Sampler:
    """See `interfaces.SamplerLike`."""

    def __init__(self, model: ModelLike, *, config: ModelConfig) -> None:
        self._model, self._config = model, config

    def draw(self, request: Request, /, *, is_dropped: Callable[[], bool]) -> Tensor:
        x = noise(request, channels=self._config.latent_channels)
        branches = [request.token_ids] if request.guidance == 1 else [request.token_ids, ()]
        states = [self._model.open(token_ids) for token_ids in branches]
        times = time_grid(request.steps, shift=self._config.time_shift)
        for number in range(request.steps):
            if is_dropped():
                raise Dropped
            velocity, *without = self._model.velocities(states, x, time=times[number])
            if without:
                velocity = without[0] + request.guidance * (velocity - without[0])
            x = x + (times[number + 1] - times[number]) * velocity
        return x


def noise(request: Request, *, channels: int) -> Tensor:
    """[channels, height, width], f32: what a seed means does not depend on where or in what the model computes."""
    shape = (channels, request.height_px // PIXELS_PER_LATENT, request.width_px // PIXELS_PER_LATENT)
    return torch.randn(shape, generator=torch.Generator().manual_seed(request.seed))


def time_grid(steps: int, *, shift: float) -> list[float]:
    """Times of the steps and of the end, from 0 to 1: equal distances, shifted towards the noise."""
    even = [number / steps for number in range(steps + 1)]
    return [u / (u + shift - shift * u) for u in even]
