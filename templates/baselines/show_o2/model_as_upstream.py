"""The velocity of latents under a prompt as upstream computes it: both branches as whole sequences in one batch, the
shorter one padded behind its image, in every step. Part of a baseline's workspace."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from . import scaffold_model
from .attention import attend


class Model(scaffold_model.Model):
    """See `interfaces.ModelLike`."""

    def velocities(self, states: Sequence[Tensor], latents: Tensor, /, *, time: float) -> list[Tensor]:
        ends = self._ends
        conditions = ends.conditions(time)
        image = ends.image_rows(latents, conditions)
        lengths = [len(text) + len(image) for text in states]
        x = torch.stack([_padded(torch.cat((text, image)), max(lengths)) for text in states])
        positions = torch.arange(x.shape[1])
        mask = torch.stack([_sight(len(text), length, max(lengths))
                            for text, length in zip(states, lengths, strict=True)])[:, None]  # fmt: skip
        for block in self._body:
            q, k, v = block.project(x, positions)
            x = block.finish(x, attend(q, k, v, mask))
        x = ends.between(x)
        *modulations, last = ends.modulations(conditions)
        for block, modulation in zip(self._head, modulations, strict=True):
            rows = torch.stack([self._by_rows(modulation, len(text), length, max(lengths))
                                for text, length in zip(states, lengths, strict=True)], dim=1)  # fmt: skip
            q, k, v = block.project(x, positions, rows)
            x = block.finish(x, attend(q, k, v, mask), rows)
        return [
            ends.velocity(each[len(text) : length], last, shape=latents.shape)
            for each, text, length in zip(x, states, lengths, strict=True)
        ]

    def _by_rows(self, modulation: Tensor, num_text: int, length: int, num_rows: int) -> Tensor:
        """[6, num_rows, hidden]: the image's rows alone are modulated."""
        rows = scaffold_model.of_image_alone(modulation, num_text=num_text, num_rows=length)
        return functional.pad(rows, (0, 0, 0, num_rows - length))


def _padded(rows: Tensor, num_rows: int) -> Tensor:
    return functional.pad(rows, (0, 0, 0, num_rows - len(rows)))


def _sight(num_text: int, length: int, num_rows: int) -> Tensor:
    """[num_rows, num_rows]; nobody sees the padding, which sees itself alone."""
    mask = torch.eye(num_rows, dtype=torch.bool)
    mask[:length, :length] = scaffold_model.sight(num_text, length)
    return mask
