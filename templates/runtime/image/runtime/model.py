"""The velocity of latents under a prompt: the whole sequence in every step, one branch after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from .attention import attend
from .blocks import Block
from .interfaces import ModelConfig
from .layers import Ends
from .parameters import Parameters


class Model:
    """See `interfaces.ModelLike`. A branch's state is its text's rows."""

    def __init__(self, weights: Mapping[str, Tensor], *, config: ModelConfig, parameters: Parameters) -> None:
        self._ends = Ends(weights, config=config, parameters=parameters)
        self._body = [
            Block(weights, f"showo.model.layers.{number}.", config=config.body, parameters=parameters)
            for number in range(config.body.num_layers)
        ]
        self._head = [
            Block(weights, f"diffusion_head_a.{number}.", config=config.head, parameters=parameters)
            for number in range(config.head.num_layers)
        ]

    def open(self, token_ids: Sequence[int], /) -> Tensor:
        return self._ends.text_rows(list(token_ids))

    def velocities(self, states: Sequence[Tensor], latents: Tensor, /, *, time: float) -> list[Tensor]:
        return [self._velocity(text, latents, time=time) for text in states]

    def _velocity(self, text: Tensor, latents: Tensor, *, time: float) -> Tensor:
        ends, num_text = self._ends, len(text)
        conditions = ends.conditions(time)
        x = torch.cat((text, ends.image_rows(latents, conditions)))[None]
        positions = torch.arange(x.shape[1])
        mask = sight(num_text, x.shape[1])
        for block in self._body:
            q, k, v = block.project(x, positions)
            x = block.finish(x, attend(q, k, v, mask))
        x = ends.between(x)
        *modulations, last = ends.modulations(conditions)
        for block, modulation in zip(self._head, modulations, strict=True):
            rows = of_image_alone(modulation, num_text=num_text, num_rows=x.shape[1])
            q, k, v = block.project(x, positions, rows)
            x = block.finish(x, attend(q, k, v, mask), rows)
        return ends.velocity(x[0, num_text:], last, shape=latents.shape)


def sight(num_text: int, num_rows: int) -> Tensor:
    """Which rows see which, [num_rows, num_rows]: the text is causal, the image sees everything."""
    mask = torch.ones(num_rows, num_rows, dtype=torch.bool).tril()
    mask[num_text:] = True
    return mask


def of_image_alone(modulation: Tensor, *, num_text: int, num_rows: int) -> Tensor:
    """`modulation` [6, 1, hidden] by rows: the text's rows pass as they are."""
    rows = torch.zeros(6, num_rows, modulation.shape[-1])
    rows[[2, 5]] = 1.0
    rows[:, num_text:] = modulation
    return rows
