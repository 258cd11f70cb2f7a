"""The velocity of latents under a prompt with what a good engineer does in a day: keys and values of the text kept over
the steps, both branches in one batch, blocks compiled. Part of a baseline's workspace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import scaffold_model
from .attention import attend
from .compiled_blocks import angles, finish, project, weights_of
from .flavour import IS_COMPILED


@dataclass
class Kept:
    pairs: list[tuple[Tensor, Tensor]]
    num_rows: int


class Model(scaffold_model.Model):
    """See `interfaces.ModelLike`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._weights = [weights_of(block) for block in (*self._body, *self._head)]
        self._project, self._finish = (torch.compile(each) if IS_COMPILED else each for each in (project, finish))

    def open(self, token_ids: Sequence[int], /) -> Kept:
        x = self._ends.text_rows(list(token_ids))[None]
        num_rows, pairs = x.shape[1], []
        positions, mask = torch.arange(num_rows), scaffold_model.sight(num_rows, num_rows)
        for blocks in (self._body, self._head):
            for block in blocks:
                q, k, v = block.project(x, positions)
                pairs.append((k, v))
                x = block.finish(x, attend(q, k, v, mask))
            x = self._ends.between(x) if blocks is self._body else x
        return Kept(pairs=pairs, num_rows=num_rows)

    def velocities(self, states: Sequence[Kept], latents: Tensor, /, *, time: float) -> list[Tensor]:
        ends = self._ends
        conditions = ends.conditions(time)
        image = ends.image_rows(latents, conditions)
        *modulations, last = ends.modulations(conditions)
        x = image.repeat(len(states), 1, 1)
        positions = torch.stack([kept.num_rows + torch.arange(len(image)) for kept in states])[:, None]
        steps = [(block, None) for block in self._body] + list(zip(self._head, modulations, strict=True))
        for number, (block, modulation) in enumerate(steps):
            if number == len(self._body):
                x = ends.between(x)
            if number in (0, len(self._body)):
                turns = angles(block._rotation, positions)
            config, weights = block._config, self._weights[number]
            q, k, v = self._project(
                x, *turns, modulation, weights, (config.num_heads, config.num_kv_heads), config.norm_eps
            )
            attended = [
                attend(q[[n]], torch.cat((keys, k[[n]]), 2), torch.cat((values, v[[n]]), 2))
                for n, (keys, values) in enumerate(kept.pairs[number] for kept in states)
            ]
            x = self._finish(x, torch.cat(attended), modulation, weights, config.norm_eps)
        return [ends.velocity(each, last, shape=latents.shape) for each in x]
