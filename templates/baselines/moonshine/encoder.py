"""Stock encoders of transformers behind the scaffold's protocol: of all the audio, or of a window. Part of a baseline's
workspace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .flavour import IS_WINDOWED
from .interfaces import Encoded, EncoderConfig
from .parameters import Parameters

SAMPLES_PER_FRAME = 320
FRONTEND_FRAMES = 3
"""that the convolutions look back to"""


@dataclass
class Recording:
    """The samples that are encoded with the next chunk."""

    samples: Tensor = field(default_factory=lambda: torch.zeros(0))
    first_frame: int = 0
    """where they begin"""
    num_final: int = 0


class Encoder:
    """See `interfaces.EncoderLike`.

    A window begins so many frames before the first that is not final as all layers and the frontend together look
    back: its frames are then those of the whole audio. Without one everything is encoded.
    """

    def __init__(self, weights: Any, *, config: EncoderConfig, parameters: Parameters) -> None:
        self._encoder = weights.model.encoder
        self._dtype = weights.dtype
        self._is_streaming = bool(config.windows)
        self._frame_samples = config.frame_samples
        self._back = FRONTEND_FRAMES + sum(back - 1 for back, _ in config.windows)
        self._ahead = sum(max(ahead - 1, 0) for _, ahead in config.windows)

    def open(self) -> Recording:
        return Recording()

    def extend(self, states: Sequence[Recording], chunks: Sequence[Tensor], /) -> list[Encoded]:
        return [self._extended(state, chunk) for state, chunk in zip(states, chunks, strict=True)]

    def _extended(self, state: Recording, chunk: Tensor) -> Encoded:
        state.samples = torch.cat((state.samples, chunk))
        padded = functional.pad(state.samples, (0, -len(state.samples) % self._frame_samples))
        values = padded[None].to(self._dtype)
        # without a mask the streaming class does not apply its windows
        mask = torch.ones(values.shape, dtype=torch.long) if self._is_streaming else None
        frames = self._encoder(values, attention_mask=mask).last_hidden_state[0]
        if not IS_WINDOWED:
            return Encoded(first=0, frames=frames, num_final=0)
        first = state.num_final
        shown = frames[first - state.first_frame :]
        num_whole = state.first_frame + len(state.samples) // SAMPLES_PER_FRAME
        state.num_final = max(first, num_whole - self._ahead)
        begin = max(0, state.num_final - self._back)
        state.samples = state.samples[(begin - state.first_frame) * SAMPLES_PER_FRAME :].clone()
        state.first_frame = begin
        return Encoded(first=first, frames=shown, num_final=state.num_final)
