"""Sampling of a whole step: one argmax for all greedy rows, one log-softmax for those that want log-probabilities."""

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
        scored = [row for row, sequence in enumerate(sequences) if sequence.params.num_logprobs is not None]
        # of the raw distribution: before any mask is written into the logits
        logprobs = logits[scored].log_softmax(-1) if scored else None
        for row, sequence in enumerate(sequences):
            if sequence.constraint is not None:
                sequence.constraint.mask(logits[row])
        token_ids = self._choose(logits, sequences)
        for token_id, sequence in zip(token_ids, sequences, strict=True):
            if sequence.constraint is not None:
                sequence.constraint.accept(token_id)
        tokens = [SampledToken(token_id=token_id) for token_id in token_ids]
        if logprobs is not None:
            counts = [sequences[row].params.num_logprobs or 0 for row in scored]
            detailed = with_logprobs(logprobs, [token_ids[row] for row in scored], counts)
            for row, token in zip(scored, detailed, strict=True):
                tokens[row] = token
        return tokens

    def _choose(self, logits: Tensor, sequences: Items[Sequence]) -> list[int]:
        """One token per row; ties of greedy sampling go to the lowest id."""
        greedy = [row for row, sequence in enumerate(sequences) if sequence.params.temperature == 0.0]
        if len(greedy) == len(sequences):
            return most_likely(logits)
        token_ids = [0] * len(sequences)
        if greedy:
            for row, token_id in zip(greedy, most_likely(logits[greedy]), strict=True):
                token_ids[row] = token_id
        for row, sequence in enumerate(sequences):
            if sequence.params.temperature > 0.0:
                # a generator of its own per sequence: what it draws does not depend on its neighbours
                token_ids[row] = draw(logits[row], sequence)
        return token_ids


def most_likely(logits: Tensor) -> list[int]:
    """Index of the largest logit of every row, the first of equal ones.

    NumPy's argmax is vectorised over the row; PyTorch's on a CPU is not and takes some twenty times as long.
    """
    token_ids: list[int] = logits.numpy().argmax(-1).tolist()
    return token_ids


def draw(logits: Tensor, sequence: Sequence) -> int:
    """Token of one sequence by temperature and nucleus."""
    params = sequence.params
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


def with_logprobs(logprobs: Tensor, token_ids: Items[int], counts: Items[int]) -> list[SampledToken]:
    """Tokens of the rows of `logprobs` with their own and the `counts` most likely log-probabilities."""
    own = logprobs.gather(-1, torch.tensor(token_ids).unsqueeze(-1)).squeeze(-1).tolist()
    values, ids = (x.tolist() for x in logprobs.topk(min(max(counts), logprobs.shape[-1])))
    return [
        SampledToken(
            token_id=token_id,
            logprob=own[row],
            top_logprobs=tuple(zip(ids[row][:count], values[row][:count], strict=True)),
        )
        for row, (token_id, count) in enumerate(zip(token_ids, counts, strict=True))
    ]
