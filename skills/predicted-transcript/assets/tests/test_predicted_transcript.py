"""The old transcript as a guess of the new one: whatever it is, right, wrong or useless, the words are the model's."""

from __future__ import annotations

import random

import pytest
import torch
from conftest import make_speech
from runtime.decoder import Decoder, Run, Transcript
from runtime.encoder import Encoder
from runtime.interfaces import Encoded, ModelConfig
from runtime.parameters import Parameters

LONGEST = 20


@pytest.fixture(scope="module")
def decoder(tensors: dict[str, torch.Tensor], config: ModelConfig) -> Decoder:
    return Decoder(tensors, config=config, parameters=Parameters())


@pytest.fixture(scope="module")
@torch.inference_mode()
def frames(tensors: dict[str, torch.Tensor], config: ModelConfig) -> torch.Tensor:
    encoder = Encoder(tensors, config=config.encoder, parameters=Parameters())
    (found,) = encoder.extend([encoder.open()], [torch.from_numpy(make_speech(3.0, seed=51))])
    return found.frames


@torch.inference_mode()
def transcribed(decoder: Decoder, frames: torch.Tensor, *, old: list[int]) -> list[int]:
    state = decoder.open()
    state.token_ids = list(old)
    (ids,) = decoder.transcribe([state], [Encoded(first=0, frames=frames, num_final=0)], [LONGEST])
    return ids


def test_any_old_transcript_gives_the_same_words(decoder: Decoder, frames: torch.Tensor, config: ModelConfig) -> None:
    right = transcribed(decoder, frames, old=[])
    draw = random.Random(5)
    for _ in range(30):
        old = list(right)
        for _ in range(draw.randint(0, 6)):
            place = draw.randrange(max(len(old), 1))
            edit = draw.choice(("replace", "insert", "delete", "cut"))
            if edit == "cut":
                old = old[:place]
            elif edit == "delete":
                del old[place : place + 1]
            else:
                old[place : place + (edit == "replace")] = [draw.randrange(config.vocab_size)]
        assert transcribed(decoder, frames, old=old) == right


def test_a_right_old_transcript_is_verified_in_one_pass(
    decoder: Decoder, frames: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = transcribed(decoder, frames, old=[])
    passes: list[int] = []
    chosen = decoder._chosen
    monkeypatch.setattr(
        decoder, "_chosen", lambda runs, guesses: passes.append(len(guesses[0])) or chosen(runs, guesses)
    )
    assert transcribed(decoder, frames, old=right) == right
    assert passes == [LONGEST - 1]


def test_frames_that_are_final_are_made_once(decoder: Decoder, frames: torch.Tensor) -> None:
    """Chunk by chunk, with a provisional tail that changes, against all frames at once."""
    state = decoder.open()
    with torch.inference_mode():
        for end in range(25, len(frames) + 1, 25):
            first = max(0, end - 37)
            shown = frames[first:end].clone()
            shown[-12:] += 0.0 if end >= len(frames) else 3.0
            (ids,) = decoder.transcribe([state], [Encoded(first=first, frames=shown, num_final=end - 12)], [LONGEST])
    assert ids == transcribed(decoder, frames, old=[])


@pytest.mark.parametrize(
    ("old", "chosen", "kept", "is_done"),
    [
        ([5, 6, 7], [5, 6, 7, 8], [5, 6, 7, 8], False),
        ([5, 6, 7], [5, 9, 1, 1], [5, 9], False),
        ([5, 6, 7], [2, 6, 7, 8], [], True),
        ([5, 6, 7], [5, 2, 7, 8], [5], True),
        ([], [4], [4], False),
    ],
)
def test_words_up_to_the_first_wrong_guess_are_kept(
    config: ModelConfig, old: list[int], chosen: list[int], kept: list[int], is_done: bool
) -> None:
    assert config.end_token_id == 2
    run = Run(Transcript(heard=[], token_ids=old), max_tokens=9, config=config, max_guesses=4)
    run.take(chosen, run.guesses)
    assert (run.ids, run.is_done) == (kept, is_done)


def test_a_place_is_left_for_the_last_word(config: ModelConfig) -> None:
    run = Run(Transcript(heard=[], token_ids=[5, 6, 7, 8]), max_tokens=3, config=config, max_guesses=4)
    assert run.guesses == [5, 6]
    run.take([5, 6, 7], run.guesses)
    assert (run.ids, run.is_done) == ([5, 6, 7], True)
