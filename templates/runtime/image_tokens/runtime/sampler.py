"""From text to codes, one by one: guided logits, and the noise of a seed by position and code.

The code with the largest `logit / temperature + g` is a draw from softmax(logit / temperature) where g is Gumbel noise
(Maddison, Tarlow, Minka, A* sampling, 2014). g comes from a generator by counter (Philox4x64-10: Salmon et al.,
Parallel random numbers: as easy as 1, 2, 3, 2011), so that it depends on seed, position and code alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from .interfaces import Dropped, ModelConfig, ModelLike, Request


class Sampler:
    """See `interfaces.SamplerLike`."""

    def __init__(self, model: ModelLike, *, config: ModelConfig) -> None:
        self._model, self._config = model, config

    def draw(self, request: Request, /, *, is_dropped: Callable[[], bool]) -> Tensor:
        state, logits = self._model.begin(branches_of(request, config=self._config))
        codes: list[int] = []
        for position in range(self._config.num_tokens):
            if is_dropped():
                raise Dropped
            if codes:
                logits = self._model.step(state, codes[-1])
            codes.append(self._chosen(logits, request, position=position))
        return torch.tensor(codes)

    def _chosen(self, logits: Tensor, request: Request, *, position: int) -> int:
        scores = guided(logits, request.guidance)
        if request.temperature > 0:
            scores = scores / request.temperature + noise(request.seed, position, num_codes=self._config.num_codes)
        return int(scores.argmax())


def branches_of(request: Request, *, config: ModelConfig) -> list[Sequence[int]]:
    """Text with the prompt, and (guidance above 1) with pad tokens in its place: both are of one length."""
    found: list[Sequence[int]] = []
    pads = [config.pad_token_id] * len(request.token_ids)
    for words in [request.token_ids] if request.guidance == 1 else [request.token_ids, pads]:
        found.append([config.begin_token_id, *words, config.begin_image_token_id])
    return found


def guided(logits: Tensor, guidance: float) -> Tensor:
    """[num_branches, num_codes], the prompt's branch first -> [num_codes], f64."""
    given = logits.double()
    return given[0] if len(given) == 1 else given[1] + guidance * (given[0] - given[1])


def noise(seed: int, position: int, *, num_codes: int) -> Tensor:
    """Standard Gumbel, [num_codes], f64."""
    words = np.random.Philox(key=seed, counter=[0, 0, 0, position]).random_raw(num_codes)
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    return torch.from_numpy(-np.log(-np.log(uniform)))
