"""What stands around the blocks: text and codes into rows; rows into logits of codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from .blocks import linear_of, rms_norm
from .interfaces import ModelConfig
from .parameters import Parameters

BODY = "model.language_model."
ALIGNER, HEAD = "model.generation_aligner.", "model.generation_head."


class Codes:
    """`text_rows`, `code_rows`, `logits`."""

    def __init__(self, weights: Mapping[str, Tensor], *, config: ModelConfig, parameters: Parameters) -> None:
        self._eps = config.body.norm_eps
        self._words = weights[f"{BODY}embed_tokens.weight"]
        self._norm = weights[f"{BODY}norm.weight"].float()
        inner = [f"{ALIGNER}hidden_layers.{number}" for number in range(config.num_embedding_layers - 1)]
        self._table = self._rows_of_codes(weights, [f"{ALIGNER}fc1", *inner])
        self._out, self._scores = (
            linear_of(weights, f"{HEAD}{part}", parameters=parameters) for part in ("proj_out", "vision_head")
        )

    @staticmethod
    def _rows_of_codes(weights: Mapping[str, Tensor], names: Sequence[str]) -> Tensor:
        """[num_codes, hidden], f32: a code's row depends on nothing else, so that all are computed once."""
        x = weights["model.generation_embeddings.weight"].float()
        for number, name in enumerate(names):
            x = functional.gelu(x) if number else x
            x = functional.linear(x, weights[f"{name}.weight"].float(), weights[f"{name}.bias"].float())
        return x

    def text_rows(self, token_ids: Sequence[int]) -> Tensor:
        """[num_rows, hidden]"""
        return self._words[torch.tensor(list(token_ids))].float()

    def code_rows(self, codes: Sequence[int]) -> Tensor:
        """[num_codes, hidden]"""
        return self._table[torch.tensor(list(codes))]

    def logits(self, x: Tensor) -> Tensor:
        """Rows behind the last block, [num_branches, hidden] -> [num_branches, num_codes]."""
        normed = rms_norm(x, self._norm, eps=self._eps)
        return self._scores(functional.gelu(self._out(normed)))
