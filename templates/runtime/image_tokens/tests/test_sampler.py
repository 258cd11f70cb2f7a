"""Guidance, temperature and noise; the decoder's picture and its PNG."""

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
from runtime.sampler import Sampler, branches_of, guided, noise


class Scripted:
    """A model that would rather have code 3 with the prompt, code 5 without, and is told every code."""

    def __init__(self, num_codes: int) -> None:
        self.num_codes, self.told, self.branches = num_codes, list[int](), list[Sequence[int]]()

    def begin(self, branches: Sequence[Sequence[int]], /) -> tuple[None, torch.Tensor]:
        self.branches = list(branches)
        return None, self.logits()

    def step(self, state: None, code: int, /) -> torch.Tensor:
        self.told.append(code)
        return self.logits()

    def logits(self) -> torch.Tensor:
        found = torch.zeros(len(self.branches), self.num_codes)
        found[0, 3] = 1.0
        found[1:, 5] = 1.5
        return found


def never() -> bool:
    return False


def test_without_temperature_the_likeliest_code_comes(config: ModelConfig) -> None:
    model = Scripted(config.num_codes)
    codes = Sampler(model, config=config).draw(asked(temperature=0.0), is_dropped=never)
    assert codes.tolist() == [3] * config.num_tokens
    assert model.told == [3] * (config.num_tokens - 1)


def test_guidance_goes_beyond_the_prompt() -> None:
    logits = torch.tensor([[1.0, 2.0], [0.0, 4.0]])
    assert guided(logits, 3.0).tolist() == [3.0, -2.0]
    assert guided(logits[:1], 1.0).tolist() == [1.0, 2.0]


def test_branches_are_of_one_length(config: ModelConfig) -> None:
    prompt, without = branches_of(asked(), config=config)
    assert list(prompt) == [config.begin_token_id, 300, 301, 302, 303, config.begin_image_token_id]
    assert list(without) == [config.begin_token_id, *[config.pad_token_id] * 4, config.begin_image_token_id]
    assert branches_of(asked(guidance=1.0), config=config) == [prompt]


def test_noise_is_that_of_seed_position_and_code() -> None:
    found = noise((1 << 32) - 1, 7, num_codes=1000)
    assert torch.equal(found[:10], noise((1 << 32) - 1, 7, num_codes=10))
    assert not torch.equal(found, noise((1 << 32) - 1, 8, num_codes=1000))
    assert not torch.equal(found, noise(3, 7, num_codes=1000))
    # Gumbel's mean is Euler's constant, its variance pi^2 / 6
    many = torch.cat([noise(11, position, num_codes=1000) for position in range(50)])
    assert float(many.mean()) == pytest.approx(0.5772, abs=0.03)
    assert float(many.var()) == pytest.approx(1.645, abs=0.08)


def test_codes_come_as_often_as_they_are_likely(config: ModelConfig) -> None:
    """Two codes of odds 3 to 1, the others out of reach."""

    class Odds(Scripted):
        def logits(self) -> torch.Tensor:
            found = torch.full((1, self.num_codes), -100.0)
            found[0, 0], found[0, 1] = float(np.log(3)), 0.0
            return found

    drawn = torch.cat([
        Sampler(Odds(config.num_codes), config=config).draw(asked(guidance=1.0, seed=seed), is_dropped=never)
        for seed in range(2000 // config.num_tokens)
    ])  # fmt: skip
    assert float((drawn == 0).float().mean()) == pytest.approx(0.75, abs=0.05)


def test_an_image_that_nobody_waits_for_ends_between_two_codes(config: ModelConfig) -> None:
    model = Scripted(config.num_codes)
    with pytest.raises(Dropped):
        Sampler(model, config=config).draw(asked(), is_dropped=lambda: len(model.told) == 2)
    assert len(model.told) == 2


@torch.inference_mode()
def test_a_picture_is_the_codes_and_its_png_is_whole(model_dir: Path, config: ModelConfig) -> None:
    decoder = PixelDecoder(weights.load_decoder_weights(model_dir), config=config)
    codes = torch.arange(config.num_tokens) * 3 % config.num_codes
    pixels = decoder.decode(codes)
    assert pixels.dtype == torch.uint8 and pixels.shape == (config.side_px, config.side_px, 3)
    assert pixels.float().std() > 5
    assert not torch.equal(pixels, decoder.decode(codes.flip(0)))
    np.testing.assert_array_equal(read_png(png.encode(pixels.numpy())), pixels.numpy())
