"""The decoder, as it is written: every transcript is decoded anew, token by token, from all frames so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .interfaces import Encoded, ModelConfig
from .layers import DecoderLayer, Memory, Rotation, Vocabulary, attend
from .parameters import Parameters


@dataclass
class Transcript:
    """All frames so far."""

    frames: Tensor | None = None


class Decoder:
    """See `interfaces.DecoderLike`."""

    def __init__(self, weights: dict[str, Tensor], *, config: ModelConfig, parameters: Parameters) -> None:
        self._config = config
        self._layers = [
            DecoderLayer(weights, number, config=config, parameters=parameters) for number in range(config.num_layers)
        ]
        self._memory = Memory(weights, parameters=parameters)
        self._rotation = Rotation(config)
        self._vocabulary = Vocabulary(weights, parameters=parameters)

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
        memory = self._memory(state.frames, first=0)
        heard = [layer.heard(memory) for layer in self._layers]
        own: list[tuple[Tensor, Tensor] | None] = [None] * len(self._layers)
        ids: list[int] = []
        token = self._config.start_token_id
        while len(ids) < max_tokens:
            token = self._next(token, position=len(ids), own=own, heard=heard)
            if token == self._config.end_token_id:
                break
            ids.append(token)
        return ids

    def _next(
        self, token: int, *, position: int, own: list[tuple[Tensor, Tensor] | None],
        heard: Sequence[tuple[Tensor, Tensor]],
    ) -> int:  # fmt: skip
        x = self._vocabulary.rows(torch.tensor([token]))
        rotation = self._rotation(torch.tensor([position]))
        for number, layer in enumerate(self._layers):
            q, k, v = layer.project(x, rotation)
            before = own[number]
            keys, values = (k, v) if before is None else (torch.cat((before[0], k)), torch.cat((before[1], v)))
            own[number] = (keys, values)
            x = layer.add_own(x, attend(q, keys, values))
            x = layer.finish(x, attend(layer.query(x), *heard[number]))
        return int(self._vocabulary.logits(x)[0].argmax())
