"""The encoder, kept up: every chunk costs its own frames and the few before them that were not final yet.

Layer by layer a *frontier* says how many input frames are final. A layer that looks `ahead` frames ahead gives final
outputs for all but the last `ahead` of its final inputs; what lies behind is provisional, computed anew with every
chunk, and shown, because a transcript is of all the audio so far. Kept are, for every layer, keys and values of the
frames that a coming query may still see, the inputs whose outputs are not final, and of the audio the samples that the
convolutions reach back to. Nothing grows with the recording.

Rows of all recordings of a step stand together in the linear layers; attention is each recording's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional

from .interfaces import Encoded, EncoderConfig
from .layers import FRAMES_PER_STEP, EncoderLayer, Frontend, attend, layer_norm, window_mask
from .parameters import Parameters

REACH = 3
"""frames before a new one that the convolutions look back to: 12 of the finest, 4 by the first and 8 by the second"""


@dataclass
class Window:
    """What one layer keeps of one recording."""

    keys: Tensor
    """[num_kept, num_heads, head_dim], of the frames right before the layer's first coming query"""
    values: Tensor
    pending: Tensor
    """[num_pending, hidden_size]: final inputs whose outputs are not final"""


@dataclass
class Recording:
    """Of one recording. `frontier[l]`: final input frames of layer l; the last entry is of the output."""

    windows: list[Window]
    frontier: list[int]
    samples: Tensor = field(default_factory=lambda: torch.zeros(0))
    """from the first that a coming frame needs"""
    first_frame: int = 0
    """where they begin"""


class Encoder:
    """See `interfaces.EncoderLike`."""

    def __init__(self, weights: dict[str, Tensor], *, config: EncoderConfig, parameters: Parameters) -> None:
        self._config = config
        self._frontend = Frontend(weights, config=config, parameters=parameters)
        self._layers = [
            EncoderLayer(weights, number, config=config, parameters=parameters) for number in range(config.num_layers)
        ]
        self._norm = weights["encoder.final_norm.gamma"].float() + 1.0

    def open(self) -> Recording:
        config = self._config
        empty = torch.zeros(0, config.num_heads, config.head_dim)
        rows = torch.zeros(0, config.hidden_size)
        windows = [Window(empty, empty, rows) for _ in self._layers]
        return Recording(windows=windows, frontier=[0] * (len(windows) + 1))

    def extend(self, states: Sequence[Recording], chunks: Sequence[Tensor], /) -> list[Encoded]:
        first = [state.frontier[-1] for state in states]
        num_final = [self._heard(state, chunk) for state, chunk in zip(states, chunks, strict=True)]
        rows = [self._new_frames(state) for state in states]
        for state, num in zip(states, num_final, strict=True):
            self._forget(state, num)
        finals = num_final
        for number in range(len(self._layers)):
            rows, finals = self._layer(number, states, rows, finals)
        for state, num in zip(states, finals, strict=True):
            state.frontier[-1] = num
        out = layer_norm(torch.cat(rows), self._norm).split([len(part) for part in rows])
        return [
            Encoded(first=begin, frames=part, num_final=num)
            for begin, part, num in zip(first, out, finals, strict=True)
        ]

    # -- samples to frames

    def _heard(self, state: Recording, chunk: Tensor) -> int:
        """Take the samples; returns how many frames are final now: those whose newest finest frame is full."""
        state.samples = torch.cat((state.samples, chunk))
        num_full = len(state.samples) // self._config.frame_samples
        return state.first_frame + -(-num_full // FRAMES_PER_STEP)

    def _new_frames(self, state: Recording) -> Tensor:
        """Frames from the frontier to the end of the audio; the last one may be of audio that is not all there."""
        padded = functional.pad(state.samples, (0, -len(state.samples) % self._config.frame_samples))
        skipped = state.frontier[0] - state.first_frame
        return self._frontend(padded)[skipped:] if len(padded) else torch.zeros(0, self._config.hidden_size)

    def _forget(self, state: Recording, num_final: int) -> None:
        """Samples that no coming frame reaches back to."""
        first = max(0, num_final - REACH)
        dropped = (first - state.first_frame) * FRAMES_PER_STEP * self._config.frame_samples
        state.samples, state.first_frame = state.samples[dropped:].clone(), first

    # -- layers

    def _layer(
        self, number: int, states: Sequence[Recording], fresh: Sequence[Tensor], finals: Sequence[int]
    ) -> tuple[list[Tensor], list[int]]:
        """Outputs of one layer for all frames that are not final in it, and how many are final now.

        `fresh`: inputs from the old frontier on, provisional ones included; `finals`: how many inputs are final.
        """
        layer, window = self._layers[number], self._config.windows[number]
        rows = [torch.cat((state.windows[number].pending, x)) for state, x in zip(states, fresh, strict=True)]
        sizes = [len(part) for part in rows]
        joined = torch.cat(rows)
        parts = [part.split(sizes) for part in layer.project(joined)]
        attended, done = [], []
        for place, (state, x) in enumerate(zip(states, rows, strict=True)):
            q, k, v = (part[place] for part in parts)
            attended.append(self._attend(state, number, q, k, v))
            done.append(self._advance(state, number, x, k, v, num_final=finals[place], window=window))
        out = layer.finish(joined, torch.cat(attended)).split(sizes)
        return list(out), done

    def _attend(self, state: Recording, number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if not len(q):
            return q
        kept = state.windows[number]
        keys, values = torch.cat((kept.keys, k)), torch.cat((kept.values, v))
        first = state.frontier[number + 1]
        mask = window_mask(first, len(q), first - len(kept.keys), len(keys), window=self._config.windows[number])
        return attend(q, keys, values, mask)

    def _advance(
        self, state: Recording, number: int, x: Tensor, k: Tensor, v: Tensor, *, num_final: int,
        window: tuple[int, int],
    ) -> int:  # fmt: skip
        """Keep what the next chunk needs; returns how many outputs are final. Writes the frontier of the inputs alone:
        the one of the outputs is where the next layer's new inputs begin, and moves when that layer has read it."""
        back, ahead = window
        old = state.frontier[number + 1]
        new = max(num_final - max(ahead - 1, 0), old)
        kept = state.windows[number]
        num_kept = len(kept.keys)
        keys, values = torch.cat((kept.keys, k)), torch.cat((kept.values, v))
        end = num_kept + new - old
        begin = max(0, end - (back - 1))
        state.windows[number] = Window(
            keys[begin:end].clone(), values[begin:end].clone(), x[new - old : num_final - old].clone()
        )
        state.frontier[number] = num_final
        return new
