"""A transcript is that of all frames so far, whatever was transcribed before and whoever else is in the step."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import make_speech
from numpy.typing import NDArray
from runtime.decoder import Decoder
from runtime.encoder import Encoder
from runtime.interfaces import Encoded, ModelConfig
from runtime.parameters import Parameters

CHUNK = 8000


@pytest.fixture(scope="module")
def encoder(tensors: dict[str, torch.Tensor], config: ModelConfig) -> Encoder:
    return Encoder(tensors, config=config.encoder, parameters=Parameters())


@pytest.fixture(scope="module")
def decoder(tensors: dict[str, torch.Tensor], config: ModelConfig) -> Decoder:
    return Decoder(tensors, config=config, parameters=Parameters())


def anew(frames: torch.Tensor) -> Encoded:
    return Encoded(first=0, frames=frames, num_final=0)


@torch.inference_mode()
def spoken(encoder: Encoder, decoder: Decoder, samples: NDArray[np.float32]) -> list[tuple[torch.Tensor, list[int]]]:
    """(all frames, transcript) after every chunk."""
    hearing, state, frames, found = encoder.open(), decoder.open(), torch.zeros(0), []
    for number, place in enumerate(range(0, len(samples), CHUNK), start=1):
        (heard,) = encoder.extend([hearing], [torch.from_numpy(samples[place : place + CHUNK])])
        frames = torch.cat((frames[: heard.first], heard.frames)) if heard.first else heard.frames
        (ids,) = decoder.transcribe([state], [heard], [4 * number])
        found.append((frames, ids))
    return found


def test_every_partial_is_that_of_its_frames_alone(
    encoder: Encoder, decoder: Decoder, speech: NDArray[np.float32]
) -> None:
    for number, (frames, ids) in enumerate(spoken(encoder, decoder, speech), start=1):
        with torch.inference_mode():
            (alone,) = decoder.transcribe([decoder.open()], [anew(frames)], [4 * number])
        assert ids == alone


def test_a_transcript_keeps_its_limit(encoder: Encoder, decoder: Decoder, speech: NDArray[np.float32]) -> None:
    (frames, _), *_ = spoken(encoder, decoder, speech[:CHUNK])
    with torch.inference_mode():
        for longest in (1, 2, 5):
            (ids,) = decoder.transcribe([decoder.open()], [anew(frames)], [longest])
            assert len(ids) <= longest


def test_recordings_of_one_step_do_not_change_each_other(encoder: Encoder, decoder: Decoder) -> None:
    recordings = [make_speech(seconds, seed=seed) for seed, seconds in ((3, 1.0), (4, 2.0), (5, 0.5))]
    frames = [spoken(encoder, decoder, samples)[-1][0] for samples in recordings]
    with torch.inference_mode():
        together = decoder.transcribe([decoder.open() for _ in frames], [anew(each) for each in frames], [7, 13, 4])
        for each, longest, ids in zip(frames, (7, 13, 4), together, strict=True):
            assert decoder.transcribe([decoder.open()], [anew(each)], [longest]) == [ids]


def test_other_frames_give_another_transcript(encoder: Encoder, decoder: Decoder) -> None:
    """A negative control: the decoder listens."""
    texts = {tuple(spoken(encoder, decoder, make_speech(1.0, seed=seed))[-1][1]) for seed in range(4)}
    assert len(texts) > 1
