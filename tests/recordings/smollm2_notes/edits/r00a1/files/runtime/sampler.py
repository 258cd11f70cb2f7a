"""Greedy, temperature and nucleus sampling, one sequence at a time."""

from __future__ import annotations

from collections.abc import Sequence as Items

import torch
from torch import Tensor

from .interfaces import ModelConfig, SampledToken, Sequence
from .parameters import Parameters


class Sampler:
    """See `interfaces.SamplerLike`."""

    def __init__(self, config: ModelConfig, *, parameters: Parameters) -> None:
        self.vocab_size = config.vocab_size

    @torch.inference_mode()
    def sample(self, logits: Tensor, sequences: Items[Sequence]) -> list[SampledToken]:
        return [self._sample_one(row, sequence) for row, sequence in zip(logits, sequences, strict=True)]

    def _sample_one(self, logits: Tensor, sequence: Sequence) -> SampledToken:
        """One token from logits [vocab_size]."""
        logprobs = logits.log_softmax(-1) if sequence.params.num_logprobs is not None else None
        if sequence.constraint is not None:
            sequence.constraint.mask(logits)
        token_id = draw(logits, sequence)
        if sequence.constraint is not None:
            sequence.constraint.accept(token_id)
        if logprobs is None:
            return SampledToken(token_id=token_id)
        return SampledToken(
            token_id=token_id,
            logprob=float(logprobs[token_id]),
            top_logprobs=top_logprobs(logprobs, sequence.params.num_logprobs or 0),
        )


def draw(logits: Tensor, sequence: Sequence) -> int:
    """Token of one sequence by its sampling parameters; ties of greedy sampling go to the lowest id."""
    params = sequence.params
    if params.temperature == 0.0:
        return int(logits.argmax())
    probs = (logits / params.temperature).softmax(-1)
    if params.top_p < 1.0:
        probs = keep_nucleus(probs, params.top_p)
    return int(torch.multinomial(probs, 1, generator=sequence.generator))


def keep_nucleus(probs: Tensor, top_p: float) -> Tensor:
    """Zero all but the smallest set of most likely tokens that holds `top_p` (Holtzman et al. 2020)."""
    ordered, order = probs.sort(descending=True)
    before = ordered.cumsum(-1) - ordered
    ordered[before >= top_p] = 0.0
    return torch.zeros_like(probs).scatter_(-1, order, ordered)


def top_logprobs(logprobs: Tensor, num_tokens: int) -> tuple[tuple[int, float], ...]:
    """The `num_tokens` most likely tokens with their log-probabilities."""
    if num_tokens == 0:
        return ()
    values, token_ids = logprobs.topk(min(num_tokens, logprobs.shape[-1]))
    return tuple(zip(token_ids.tolist(), values.tolist(), strict=True))
