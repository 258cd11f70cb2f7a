"""The logits of the code that follows with what a good engineer does in a day: both branches in one batch, a cache of
fixed size, blocks compiled. Part of a baseline's workspace."""

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
from .interfaces import ModelConfig


@dataclass
class Cache:
    keys: Tensor
    """[num_layers, num_branches, num_kv_heads, capacity, head_dim]"""
    values: Tensor
    num_rows: int


class Model(scaffold_model.Model):
    """See `interfaces.ModelLike`. The text goes through as it is; each code through compiled blocks."""

    def __init__(self, *arguments: Any, config: ModelConfig, **options: Any) -> None:
        super().__init__(*arguments, config=config, **options)
        self._num_tokens = config.num_tokens
        self._weights = [weights_of(block) for block in self._blocks]
        self._project, self._finish = (torch.compile(each) if IS_COMPILED else each for each in (project, finish))

    def begin(self, branches: Sequence[Sequence[int]], /) -> tuple[Cache, Tensor]:
        kept = self._empty(num_branches=len(branches))
        logits = self._through(kept, torch.stack([self._codes.text_rows(each) for each in branches]))
        room = (0, 0, 0, self._num_tokens)
        keys, values = (
            torch.stack([torch.nn.functional.pad(pair[part], room) for pair in kept.pairs]) for part in (0, 1)
        )
        return Cache(keys=keys, values=values, num_rows=kept.num_rows), logits

    def step(self, state: Cache, code: int, /) -> Tensor:
        at, config = state.num_rows, self._config
        x = self._codes.code_rows([code]).expand(state.keys.shape[1], 1, -1).contiguous()
        turns = angles(self._blocks[0]._rotation, torch.tensor([at]))
        for number, weights in enumerate(self._weights):
            heads = (config.num_heads, config.num_kv_heads)
            q, k, v = self._project(x, *turns, None, weights, heads, config.norm_eps)
            keys, values = state.keys[number], state.values[number]
            keys[:, :, at : at + 1], values[:, :, at : at + 1] = k, v
            x = self._finish(x, attend(q, keys[:, :, : at + 1], values[:, :, : at + 1]), None, weights, config.norm_eps)
        state.num_rows += 1
        return self._codes.logits(x[:, -1])
