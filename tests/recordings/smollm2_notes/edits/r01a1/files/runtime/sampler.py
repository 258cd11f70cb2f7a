"""Greedy, temperature and nucleus sampling; plain greedy rows are taken together, the others one by one."""

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
        if all(is_plain_greedy(sequence) for sequence in sequences):
            # NumPy's argmax is vectorised over the row, PyTorch's is not; both give ties to the lowest id
            return [SampledToken(token_id=int(token_id)) for token_id in logits.numpy().argmax(-1)]
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


def is_plain_greedy(sequence: Sequence) -> bool:
    """Whether nothing but the largest logit is wanted: no draw, no mask, no log-probabilities."""
    params = sequence.params
    return params.temperature == 0.0 and params.num_logprobs is None and sequence.constraint is None


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
