"""The velocity of latents under a prompt with what a good engineer does in a day: keys and values of the text kept over
the steps, both branches in one batch, blocks compiled. Part of a baseline's workspace.

What is compiled are functions of tensors: one compilation serves every block of body or head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from . import scaffold_model
from .attention import attend
from .flavour import IS_COMPILED
from .layers import Block, Rotation

Weights = tuple[Tensor | None, ...]


@dataclass
class Kept:
    pairs: list[tuple[Tensor, Tensor]]
    num_rows: int


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return functional.linear(x.to(weight.dtype), weight, bias).float()


def project(
    x: Tensor, cos: Tensor, sin: Tensor, modulation: Tensor | None, weights: Weights, heads: tuple[int, int], eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Rotated queries and keys, and values, [batch, heads, num_rows, head_dim]."""
    norm, _, qkv, bias, _, _, _, q_norm, k_norm = weights
    rows = functional.rms_norm(x, (x.shape[-1],), norm, eps)
    if modulation is not None:
        rows = rows * (1 + modulation[1]) + modulation[0]
    given = linear(rows, qkv, bias).view(x.shape[0], x.shape[1], heads[0] + 2 * heads[1], -1).transpose(1, 2)
    q, k, v = given.split((heads[0], heads[1], heads[1]), dim=1)
    if q_norm is not None:
        q = functional.rms_norm(q, (q.shape[-1],), q_norm, eps)
        k = functional.rms_norm(k, (k.shape[-1],), k_norm, eps)
    return turned(q, cos, sin), turned(k, cos, sin), v


def finish(x: Tensor, attended: Tensor, modulation: Tensor | None, weights: Weights, eps: float) -> Tensor:
    """The block's output."""
    _, norm, _, _, out, gate_up, down, _, _ = weights
    added = linear(attended.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1), out)
    x = x + (added if modulation is None else modulation[2] * added)
    rows = functional.rms_norm(x, (x.shape[-1],), norm, eps)
    if modulation is not None:
        rows = rows * (1 + modulation[4]) + modulation[3]
    gate, up = linear(rows, gate_up).chunk(2, -1)
    added = linear(functional.silu(gate) * up, down)
    return x + (added if modulation is None else modulation[5] * added)


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def weights_of(block: Block) -> Weights:
    """In the order of `project` and `finish`."""
    q_norm, k_norm = block._qk_norms or (None, None)
    linears = (block._out.weight, block._gate_up.weight, block._down.weight)
    return (*block._norms, block._qkv.weight, block._qkv.bias, *linears, q_norm, k_norm)


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


def angles(rotation: Rotation, positions: Tensor) -> tuple[Tensor, Tensor]:
    turns = positions[..., None].float() * rotation._frequencies
    return turns.cos(), turns.sin()
