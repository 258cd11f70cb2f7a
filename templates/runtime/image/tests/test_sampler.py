"""Steps, guidance and noise; the decoder's picture and its PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import asked
from png_reader import read_png
from runtime import png, weights
from runtime.decoder import PixelDecoder
from runtime.interfaces import Dropped, ModelConfig
from runtime.sampler import Sampler, noise, time_grid


class Straight:
    """A model whose velocity is the number of its prompt's tokens at any place and time."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def open(self, token_ids: Sequence[int], /) -> int:
        return len(token_ids)

    def velocities(self, states: Sequence[int], latents: torch.Tensor, /, *, time: float) -> list[torch.Tensor]:
        self.times.append(time)
        return [torch.full_like(latents, float(state)) for state in states]


def never() -> bool:
    return False


def test_guidance_goes_beyond_the_prompt_and_the_steps_sum_to_one(config: ModelConfig) -> None:
    for guidance, moved in ((1.0, 4.0), (3.0, 12.0)):
        model, request = Straight(), asked(config, steps=5, guidance=guidance)
        x = Sampler(model, config=config).draw(request, is_dropped=never)
        start = noise(request, channels=config.latent_channels)
        torch.testing.assert_close(x - start, torch.full_like(x, moved))
        assert model.times == time_grid(5, shift=config.time_shift)[:-1]


def test_the_grid_is_shifted_towards_the_noise() -> None:
    assert time_grid(4, shift=1.0) == [0.0, 0.25, 0.5, 0.75, 1.0]
    shifted = time_grid(4, shift=3.0)
    assert shifted[0] == 0 and shifted[-1] == 1
    assert shifted[1] == pytest.approx(0.25 / (0.25 + 3 - 0.75))


def test_noise_is_the_seeds_alone(config: ModelConfig) -> None:
    request = asked(config, seed=(1 << 32) - 1)
    shape = (config.latent_channels, config.latent_height, config.latent_width)
    right = torch.randn(shape, generator=torch.Generator().manual_seed((1 << 32) - 1))
    assert torch.equal(noise(request, channels=config.latent_channels), right)


def test_an_image_that_nobody_waits_for_ends_between_two_steps(config: ModelConfig) -> None:
    model = Straight()
    with pytest.raises(Dropped):
        Sampler(model, config=config).draw(asked(config, steps=9), is_dropped=lambda: len(model.times) == 2)
    assert len(model.times) == 2


@torch.inference_mode()
def test_a_picture_has_eight_pixels_a_latent_and_its_png_is_whole(
    model_dir: Path, config: ModelConfig, latents: torch.Tensor
) -> None:
    decoder = PixelDecoder(weights.load_decoder_weights(model_dir), config=config)
    pixels = decoder.decode(latents)
    assert pixels.dtype == torch.uint8
    assert pixels.shape == (8 * config.latent_height, 8 * config.latent_width, 3)
    assert pixels.float().std() > 5
    assert not torch.equal(pixels, decoder.decode(latents.flip(1)))
    np.testing.assert_array_equal(read_png(png.encode(pixels.numpy())), pixels.numpy())
