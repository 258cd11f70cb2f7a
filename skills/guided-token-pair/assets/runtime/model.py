"""The logits of the code that follows: both branches of guidance in one batch, over a cache that is written in place.

Branches are of one length, so that nothing is padded and nothing masked. What a token adds to the cache is one row:
what is there is neither copied nor moved.
"""

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
class Cache:
    """Of one image: keys and values, [num_layers, num_branches, num_kv_heads, capacity, head_dim] each."""

    keys: Tensor
    values: Tensor
    num_rows: int = 0


class Model:
    """See `interfaces.ModelLike`."""

    def __init__(self, weights: Mapping[str, Tensor], *, config: ModelConfig, parameters: Parameters) -> None:
        self._config = config
        self._codes = Codes(weights, config=config, parameters=parameters)
        self._blocks = [
            Block(weights, f"{BODY}layers.{number}.", config=config.body, parameters=parameters)
            for number in range(config.body.num_layers)
        ]

    def begin(self, branches: Sequence[Sequence[int]], /) -> tuple[Cache, Tensor]:
        body, num_rows = self._config.body, len(branches[0])
        shape = (body.num_layers, len(branches), body.num_kv_heads, num_rows + self._config.num_tokens, body.head_dim)
        cache = Cache(keys=torch.empty(shape), values=torch.empty(shape))
        x = torch.stack([self._codes.text_rows(token_ids) for token_ids in branches])
        mask = torch.ones(num_rows, num_rows, dtype=torch.bool).tril()
        return cache, self._through(cache, x, mask)

    def step(self, state: Cache, code: int, /) -> Tensor:
        row = self._codes.code_rows([code])
        return self._through(state, row.expand(state.keys.shape[1], *row.shape), None)

    def _through(self, cache: Cache, x: Tensor, mask: Tensor | None) -> Tensor:
        """Append rows [num_branches, num_rows, hidden]; logits behind the last one, [num_branches, num_codes]."""
        first, end = cache.num_rows, cache.num_rows + x.shape[1]
        positions = torch.arange(first, end)
        for block, keys, values in zip(self._blocks, cache.keys, cache.values, strict=True):
            q, keys[:, :, first:end], values[:, :, first:end] = block.project(x, positions)
            x = block.finish(x, attend(q, keys[:, :, :end], values[:, :, :end], mask))
        cache.num_rows = end
        return self._codes.logits(x[:, -1])
