"""The encoder, as it is written: all the audio so far is encoded anew for every chunk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from .interfaces import Encoded, EncoderConfig
from .layers import (
    EncoderLayer,
    Frontend,
    Rotation,
    UtteranceFrontend,
    attend,
    layer_norm,
    norm_weight,
    rotated,
    window_mask,
)
from .parameters import Parameters


@dataclass
class Recording:
    """All its samples so far."""

    samples: Tensor = field(default_factory=lambda: torch.zeros(0))


class Encoder:
    """See `interfaces.EncoderLike`."""

    def __init__(self, weights: dict[str, Tensor], *, config: EncoderConfig, parameters: Parameters) -> None:
        self._config = config
        frontend = Frontend if config.windows else UtteranceFrontend
        self._frontend = frontend(weights, config=config, parameters=parameters)
        self._layers = [
            EncoderLayer(weights, number, config=config, parameters=parameters) for number in range(config.num_layers)
        ]
        self._norm = norm_weight(weights, "encoder.final_norm" if config.windows else "encoder.layer_norm")

    def open(self) -> Recording:
        return Recording()

    def extend(self, states: Sequence[Recording], chunks: Sequence[Tensor], /) -> list[Encoded]:
        return [self._extended(state, chunk) for state, chunk in zip(states, chunks, strict=True)]

    def _extended(self, state: Recording, chunk: Tensor) -> Encoded:
        state.samples = torch.cat((state.samples, chunk))
        padded = functional.pad(state.samples, (0, -len(state.samples) % self._config.frame_samples))
        return Encoded(first=0, frames=self._encoded(padded), num_final=0)

    def _encoded(self, samples: Tensor) -> Tensor:
        x = self._frontend(samples)
        x = self._windowed(x) if self._config.windows else self._whole(x)
        return layer_norm(x, self._norm)

    def _windowed(self, x: Tensor) -> Tensor:
        for layer, window in zip(self._layers, self._config.windows, strict=True):
            q, k, v = layer.project(x)
            x = layer.finish(x, attend(q, k, v, window_mask(0, len(x), 0, len(x), window=window)))
        return x

    def _whole(self, x: Tensor) -> Tensor:
        rotation = Rotation(self._config)(torch.arange(len(x)))
        for layer in self._layers:
            q, k, v = layer.project(x)
            x = layer.finish(x, attend(rotated(q, rotation), rotated(k, rotation), v))
        return x
