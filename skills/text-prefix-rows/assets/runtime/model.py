"""The velocity of latents under a prompt: the text's keys and values once, then the image's rows alone.

No row of the text sees the image or the time, and the head modulates the image's rows alone. So what a layer keeps of
the text is the same at every step.
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
        conditions = self._ends.conditions(time)
        rows = self._ends.image_rows(latents, conditions)
        modulations = self._ends.modulations(conditions)
        return [self._velocity(prefix, rows, modulations, shape=latents.shape) for prefix in states]

    def _velocity(self, prefix: Prefix, rows: Tensor, modulations: list[Tensor], *, shape: torch.Size) -> Tensor:
        x, kept = rows[None], iter(prefix.kept)
        positions = torch.arange(prefix.num_rows, prefix.num_rows + x.shape[1])
        for block in self._body:
            x = _through(block, x, positions, next(kept), None)
        x = self._ends.between(x)
        for block, modulation in zip(self._head, modulations, strict=False):
            x = _through(block, x, positions, next(kept), modulation)
        return self._ends.velocity(x[0], modulations[-1], shape=shape)


def _through(
    block: Block, x: Tensor, positions: Tensor, kept: tuple[Tensor, Tensor], modulation: Tensor | None
) -> Tensor:
    """Image rows [1, num_rows, hidden], which see the kept text and each other."""
    q, k, v = block.project(x, positions, modulation)
    attended = attend(q, torch.cat((kept[0], k), dim=2), torch.cat((kept[1], v), dim=2))
    return block.finish(x, attended, modulation)
