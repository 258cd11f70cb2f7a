"""The nouns that cross module borders, and the contracts of the modules that may be replaced (seams).

    weights     load_config(model_dir), load_weights(model_dir)
    linear      Linear(weight, bias, parameters=)
    encoder     Encoder(weights, config=, parameters=): audio -> frames, as the recording goes on
    decoder     Decoder(weights, config=, parameters=): frames -> the ids of the transcript so far
    scheduler   Scheduler(parameters=): which recordings the next step takes
    tokenizer   Tokenizer(model_dir)
    http        create_app(service)
    placement   configure_threads(num_threads)

Every step takes a list of recordings, each with a state of its own that the module made and nobody else looks into.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class EncoderConfig:
    num_layers: int
    hidden_size: int
    num_heads: int
    head_dim: int
    frame_samples: int = 1
    """samples of the finest frame; four of them make a frame of a streaming encoder"""
    windows: tuple[tuple[int, int], ...] = ()
    """by layer: frames back, own included, and frames ahead, own included (0 or 1: none); empty: every layer sees the
    whole utterance, and knows places by rotation"""
    rotary_dim: int = 0
    rope_theta: float = 10000.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    encoder: EncoderConfig
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    head_dim: int
    rotary_dim: int
    rope_theta: float
    max_positions: int
    """of encoder frames in one transcript, or of tokens where frames have none"""
    sample_rate_hz: int
    start_token_id: int
    end_token_id: int


TOKENS_PER_S = 6.5
"""a transcript has at most so many tokens for every second of audio, one at least (Moonshine's model card)"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoded:
    """Frames of one recording so far. Those before `first` are as an earlier call returned them.

    Frames before `num_final` will never change, whatever is heard next; those from there on may.
    """

    first: int
    frames: Tensor
    """[num_frames - first, hidden_size]"""
    num_final: int

    @property
    def num_frames(self) -> int:
        return self.first + self.frames.shape[0]


class EncoderLike(Protocol):
    def open(self) -> Any:
        """State of a new recording."""
        ...

    def extend(self, states: Sequence[Any], chunks: Sequence[Tensor], /) -> list[Encoded]:
        """Hear on: one chunk of samples in [-1, 1], f32, for every state. The last frame of a recording whose length is
        no multiple of `frame_samples` is filled with zeros, and is not final."""
        ...


class DecoderLike(Protocol):
    def open(self) -> Any:
        """State of a new recording."""
        ...

    def transcribe(
        self, states: Sequence[Any], encoded: Sequence[Encoded], max_tokens: Sequence[int], /
    ) -> list[list[int]]:
        """For every recording what greedy decoding writes of all its frames: up to the end token, which is left out, or
        to so many tokens."""
        ...


class Waiting(Protocol):
    """A recording with audio that no transcript has yet."""

    @property
    def waiting_since_s(self) -> float: ...


class SchedulerLike(Protocol):
    def choose(self, waiting: Sequence[Waiting], /) -> list[Any]:
        """Which of them the next step takes; never empty where `waiting` is not."""
        ...


class TokenizerLike(Protocol):
    def decode(self, token_ids: Sequence[int], /) -> str: ...
