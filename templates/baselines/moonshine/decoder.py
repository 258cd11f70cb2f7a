"""The stock decoder of transformers behind the scaffold's protocol: every transcript anew, with its key-value cache.
Part of a baseline's workspace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .interfaces import Encoded, ModelConfig
from .parameters import Parameters


@dataclass
class Transcript:
    frames: Tensor | None = None


class Decoder:
    """See `interfaces.DecoderLike`."""

    def __init__(self, weights: Any, *, config: ModelConfig, parameters: Parameters) -> None:
        self._decoder, self._readout = weights.model.decoder, weights.proj_out
        self._start_id, self._end_id = config.start_token_id, config.end_token_id

    def open(self) -> Transcript:
        return Transcript()

    def transcribe(
        self, states: Sequence[Transcript], encoded: Sequence[Encoded], max_tokens: Sequence[int], /
    ) -> list[list[int]]:
        return [
            self._transcribed(state, frames, longest)
            for state, frames, longest in zip(states, encoded, max_tokens, strict=True)
        ]

    def _transcribed(self, state: Transcript, encoded: Encoded, max_tokens: int) -> list[int]:
        kept = encoded.frames[:0] if state.frames is None else state.frames[: encoded.first]
        state.frames = torch.cat((kept, encoded.frames))
        # the class adds positions in place, at every step: after the first one nothing reads these states any more
        heard = state.frames[None].clone()
        ids: list[int] = []
        cache, token = None, self._start_id
        while len(ids) < max_tokens:
            step = self._decoder(
                input_ids=torch.tensor([[token]]), encoder_hidden_states=heard, cache=cache, use_cache=True
            )
            cache, token = step.cache, int(self._readout(step.last_hidden_state)[0, -1].argmax())
            if token == self._end_id:
                break
            ids.append(token)
        return ids
