"""The velocity of latents under a prompt: the text's keys and values once, and both branches of guidance in one batch.

The image's rows of all branches pass the linear layers together; in attention each branch sees its own text, as long as
that is, so that nothing is padded and nothing masked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .attention import attend
from .blocks import Block
from .interfaces import ModelConfig
from .layers import Ends
from .parameters import Parameters


@dataclass(frozen=True, slots=True)
class Prefix:
    """One branch's text: keys and values by layer, body first, each [1, num_kv_heads, num_rows, head_dim]."""

    kept: tuple[tuple[Tensor, Tensor], ...]
    num_rows: int


class Model:
    """See `interfaces.ModelLike`."""

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

    def open(self, token_ids: Sequence[int], /) -> Prefix:
        x = self._ends.text_rows(list(token_ids))[None]
        num_rows = x.shape[1]
        positions, mask = torch.arange(num_rows), torch.ones(num_rows, num_rows, dtype=torch.bool).tril()
        kept: list[tuple[Tensor, Tensor]] = []
        for blocks in (self._body, self._head):
            for block in blocks:
                q, k, v = block.project(x, positions)
                kept.append((k, v))
                # behind the last block nobody reads the text's rows
                if len(kept) < len(self._body) + len(self._head):
                    x = block.finish(x, attend(q, k, v, mask))
            if blocks is self._body:
                x = self._ends.between(x)
        return Prefix(kept=tuple(kept), num_rows=num_rows)

    def velocities(self, states: Sequence[Prefix], latents: Tensor, /, *, time: float) -> list[Tensor]:
        ends = self._ends
        conditions = ends.conditions(time)
        rows = ends.image_rows(latents, conditions)
        *modulations, last = ends.modulations(conditions)
        x = rows.expand(len(states), *rows.shape)
        starts = torch.tensor([prefix.num_rows for prefix in states])
        positions = (starts[:, None] + torch.arange(len(rows)))[:, None]
        layers = list(zip(*(prefix.kept for prefix in states), strict=True))
        for block, kept in zip(self._body, layers, strict=False):
            x = _through(block, x, positions, kept, None)
        x = ends.between(x)
        for block, kept, modulation in zip(self._head, layers[len(self._body) :], modulations, strict=True):
            x = _through(block, x, positions, kept, modulation)
        return [ends.velocity(each, last, shape=latents.shape) for each in x]


def _through(
    block: Block, x: Tensor, positions: Tensor, kept: Sequence[tuple[Tensor, Tensor]], modulation: Tensor | None
) -> Tensor:
    """Image rows of all branches, [num_branches, num_rows, hidden]; each sees its own text and its own image."""
    q, k, v = block.project(x, positions, modulation)
    attended = [
        attend(q[n : n + 1], torch.cat((keys, k[n : n + 1]), dim=2), torch.cat((values, v[n : n + 1]), dim=2))
        for n, (keys, values) in enumerate(kept)
    ]
    return block.finish(x, torch.cat(attended), modulation)
