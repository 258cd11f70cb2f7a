"""The logits of the code that follows: keys and values are kept, one branch of guidance after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .attention import attend
from .blocks import Block
from .codes import BODY, Codes
from .interfaces import ModelConfig
from .parameters import Parameters


@dataclass(slots=True)
class Kept:
    """Keys and values by layer, each [num_branches, num_kv_heads, num_rows, head_dim]."""

    pairs: list[tuple[Tensor, Tensor]]
    num_rows: int = 0


class Model:
    """See `interfaces.ModelLike`. A state is what each branch keeps."""

    def __init__(self, weights: Mapping[str, Tensor], *, config: ModelConfig, parameters: Parameters) -> None:
        self._config = config.body
        self._codes = Codes(weights, config=config, parameters=parameters)
        self._blocks = [
            Block(weights, f"{BODY}layers.{number}.", config=config.body, parameters=parameters)
            for number in range(config.body.num_layers)
        ]

    def begin(self, branches: Sequence[Sequence[int]], /) -> tuple[list[Kept], Tensor]:
        states = [self._empty(num_branches=1) for _ in branches]
        rows = [self._codes.text_rows(token_ids)[None] for token_ids in branches]
        return states, torch.cat([self._through(state, x) for state, x in zip(states, rows, strict=True)])

    def step(self, state: list[Kept], code: int, /) -> Tensor:
        row = self._codes.code_rows([code])[None]
        return torch.cat([self._through(kept, row) for kept in state])

    def _empty(self, *, num_branches: int) -> Kept:
        nothing = torch.empty(num_branches, self._config.num_kv_heads, 0, self._config.head_dim)
        return Kept([(nothing, nothing)] * len(self._blocks))

    def _through(self, kept: Kept, x: Tensor) -> Tensor:
        """Append rows [num_branches, num_rows, hidden]; logits behind the last one, [num_branches, num_codes]."""
        num_rows, first = x.shape[1], kept.num_rows
        positions = torch.arange(first, first + num_rows)
        mask = sight(first, num_rows) if num_rows > 1 else None
        for number, block in enumerate(self._blocks):
            q, k, v = block.project(x, positions)
            keys, values = kept.pairs[number]
            kept.pairs[number] = (torch.cat((keys, k), dim=2), torch.cat((values, v), dim=2))
            x = block.finish(x, attend(q, *kept.pairs[number], mask))
        kept.num_rows += num_rows
        return self._codes.logits(x[:, -1])


def sight(num_kept: int, num_rows: int) -> Tensor:
    """Which rows see which, [num_rows, num_kept + num_rows]: all that is kept, and what is not behind them."""
    return torch.ones(num_rows, num_kept + num_rows, dtype=torch.bool).tril(num_kept)
