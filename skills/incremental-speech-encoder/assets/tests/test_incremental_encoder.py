"""The encoder that is kept up: nothing grows, nothing is made twice, and frames are those of the whole audio."""

from __future__ import annotations

import torch
from conftest import make_speech
from runtime.encoder import REACH, Encoder
from runtime.interfaces import ModelConfig
from runtime.layers import EncoderLayer, Frontend, attend, layer_norm, window_mask
from runtime.parameters import Parameters

CHUNK = 8000


@torch.inference_mode()
def encoded_anew(samples: torch.Tensor, tensors: dict[str, torch.Tensor], config: ModelConfig) -> torch.Tensor:
    """All frames of all the audio, as the model is written."""
    parameters, encoder = Parameters(), config.encoder
    x = Frontend(tensors, config=encoder, parameters=parameters)(samples)
    for number, window in enumerate(encoder.windows):
        layer = EncoderLayer(tensors, number, config=encoder, parameters=parameters)
        q, k, v = layer.project(x)
        x = layer.finish(x, attend(q, k, v, window_mask(0, len(x), 0, len(x), window=window)))
    return layer_norm(x, tensors["encoder.final_norm.gamma"].float() + 1.0)


def test_frames_of_twelve_seconds_are_those_of_the_whole(tensors: dict[str, torch.Tensor], config: ModelConfig) -> None:
    samples = torch.from_numpy(make_speech(12.0, seed=41))
    encoder = Encoder(tensors, config=config.encoder, parameters=Parameters())
    state, frames = encoder.open(), torch.zeros(0, config.encoder.hidden_size)
    with torch.inference_mode():
        for place in range(0, len(samples), CHUNK):
            (found,) = encoder.extend([state], [samples[place : place + CHUNK]])
            frames = torch.cat((frames[: found.first], found.frames))
    torch.testing.assert_close(frames, encoded_anew(samples, tensors, config), rtol=1e-3, atol=1e-4)


def test_a_chunk_costs_the_same_whenever_it_comes(tensors: dict[str, torch.Tensor], config: ModelConfig) -> None:
    """Frames that are computed again, what is kept, and what is final, by chunk."""
    samples = torch.from_numpy(make_speech(8.0, seed=42))
    encoder = Encoder(tensors, config=config.encoder, parameters=Parameters())
    state, sizes = encoder.open(), []
    with torch.inference_mode():
        for place in range(0, len(samples), CHUNK):
            (found,) = encoder.extend([state], [samples[place : place + CHUNK]])
            kept = [len(window.keys) + len(window.pending) for window in state.windows]
            sizes.append((len(found.frames), found.num_frames - found.num_final, len(state.samples), *kept))
    lookahead = sum(max(ahead - 1, 0) for _, ahead in config.encoder.windows)
    assert len(set(sizes[2:])) == 1, "what is kept grows with the recording"
    assert sizes[-1][:3] == (25 + lookahead, lookahead, REACH * 4 * config.encoder.frame_samples)


def test_what_a_frame_may_still_hear_is_not_called_final(tensors: dict[str, torch.Tensor], config: ModelConfig) -> None:
    """A negative control: a provisional frame does change with what comes behind it."""
    samples = torch.from_numpy(make_speech(1.0, seed=43))
    encoder = Encoder(tensors, config=config.encoder, parameters=Parameters())
    state = encoder.open()
    with torch.inference_mode():
        (before,) = encoder.extend([state], [samples[:CHUNK]])
        (behind,) = encoder.extend([state], [samples[CHUNK:]])
    provisional = before.frames[before.num_final :]
    assert behind.first == before.num_final
    assert (behind.frames[: len(provisional)] - provisional).abs().max() > 1e-3
