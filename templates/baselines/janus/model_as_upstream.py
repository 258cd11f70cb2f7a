"""The logits of the code that follows as upstream computes them: both branches of guidance in one batch, keys and
values in a cache. Part of a baseline's workspace."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from . import scaffold_model


class Model(scaffold_model.Model):
    """See `interfaces.ModelLike`. Branches are of one length, so that nothing is padded."""

    def begin(self, branches: Sequence[Sequence[int]], /) -> tuple[scaffold_model.Kept, Tensor]:
        kept = self._empty(num_branches=len(branches))
        return kept, self._through(kept, torch.stack([self._codes.text_rows(each) for each in branches]))

    def step(self, state: scaffold_model.Kept, code: int, /) -> Tensor:
        num_branches = state.pairs[0][0].shape[0]
        return self._through(state, self._codes.code_rows([code]).expand(num_branches, 1, -1))
