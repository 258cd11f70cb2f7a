"""Frames do not depend on how the audio was cut, and those that were called final never change."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import make_speech
from numpy.typing import NDArray
from runtime.encoder import Encoder
from runtime.interfaces import ModelConfig
from runtime.parameters import Parameters

CLOSE = {"rtol": 1e-3, "atol": 1e-4}


@pytest.fixture(scope="module")
def encoder(tensors: dict[str, torch.Tensor], config: ModelConfig) -> Encoder:
    return Encoder(tensors, config=config.encoder, parameters=Parameters())


@torch.inference_mode()
def heard(encoder: Encoder, samples: NDArray[np.float32], sizes: list[int]) -> tuple[torch.Tensor, list[int]]:
    """All frames after the last piece, put together as `Encoded` says, and `num_final` after every piece."""
    state, frames, finals, place = encoder.open(), torch.zeros(0), [], 0
    for size in sizes:
        (found,) = encoder.extend([state], [torch.from_numpy(samples[place : place + size])])
        place = min(place + size, len(samples))
        frames = torch.cat((frames[: found.first], found.frames)) if found.first else found.frames
        finals.append(found.num_final)
        assert found.num_frames == len(frames) == -(-place // 320)
    return frames, finals


@pytest.mark.parametrize("size", [8000, 4000, 16000, 5328, 1001])
def test_pieces_give_the_frames_of_the_whole(encoder: Encoder, speech: NDArray[np.float32], size: int) -> None:
    whole, _ = heard(encoder, speech, [len(speech)])
    num_pieces = -(-len(speech) // size)
    pieces, finals = heard(encoder, speech, [size] * num_pieces)
    torch.testing.assert_close(pieces, whole, **CLOSE)
    assert finals == sorted(finals)


def test_what_is_called_final_stays(encoder: Encoder, speech: NDArray[np.float32]) -> None:
    state, kept = encoder.open(), torch.zeros(0)
    with torch.inference_mode():
        for place in range(0, len(speech), 8000):
            (found,) = encoder.extend([state], [torch.from_numpy(speech[place : place + 8000])])
            frames = torch.cat((kept[: found.first], found.frames)) if found.first else found.frames
            torch.testing.assert_close(frames[: len(kept)], kept[: len(frames)], **CLOSE) if found.first else None
            kept = frames[: found.num_final]


def test_recordings_of_one_step_do_not_hear_each_other(encoder: Encoder, speech: NDArray[np.float32]) -> None:
    others = [make_speech(1.0, seed=7), speech[:8000], make_speech(0.25, seed=9)]
    states = [encoder.open() for _ in others]
    with torch.inference_mode():
        together = encoder.extend(states, [torch.from_numpy(each) for each in others])
        for each, found in zip(others, together, strict=True):
            (alone,) = encoder.extend([encoder.open()], [torch.from_numpy(each)])
            torch.testing.assert_close(found.frames, alone.frames, **CLOSE)


def test_frames_hear_the_audio(encoder: Encoder, speech: NDArray[np.float32]) -> None:
    """A negative control: other audio gives other frames."""
    one, _ = heard(encoder, speech[:8000], [8000])
    other, _ = heard(encoder, speech[8000:16000].copy(), [8000])
    assert (one - other).abs().max() > 0.1
