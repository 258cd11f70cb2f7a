"""Rows of one step do not disturb each other, whatever each of them asks for."""

from __future__ import annotations

import asyncio

import pytest
import torch
from runtime.interfaces import ModelConfig, SampledToken, SamplingParams, Sequence
from runtime.parameters import Parameters
from runtime.sampler import Sampler
from runtime.tokenizer import Tokenizer
from torch import Tensor


class OnlyToken:
    """A constraint that allows one token and records what it was given."""

    def __init__(self, token_id: int) -> None:
        self.token_id = token_id
        self.accepted: list[int] = []

    def mask(self, logits: Tensor) -> None:
        allowed = logits[self.token_id].clone()
        logits.fill_(float("-inf"))
        logits[self.token_id] = allowed

    def accept(self, token_id: int) -> None:
        self.accepted.append(token_id)

    @property
    def is_complete(self) -> bool:
        return False


@pytest.fixture
def kinds(tokenizer: Tokenizer) -> list[Sequence]:
    """Greedy, greedy with log-probabilities, seeded, seeded nucleus with log-probabilities, constrained."""
    params = [
        SamplingParams(max_tokens=4, temperature=0.0),
        SamplingParams(max_tokens=4, temperature=0.0, num_logprobs=3),
        SamplingParams(max_tokens=4, temperature=1.0, seed=5),
        SamplingParams(max_tokens=4, temperature=0.7, top_p=0.8, seed=6, num_logprobs=0),
        SamplingParams(max_tokens=4, temperature=0.0, num_logprobs=1),
    ]
    sequences = [
        Sequence(
            request_id=str(index),
            index=0,
            prompt_token_ids=[1],
            params=item,
            detokenizer=tokenizer.detokenizer(()),
            sink=asyncio.Queue(),
            generator=torch.Generator().manual_seed(item.seed) if item.seed is not None else None,
        )
        for index, item in enumerate(params)
    ]
    sequences[4].constraint = OnlyToken(2)
    return sequences


@pytest.fixture
def sampler(config: ModelConfig) -> Sampler:
    return Sampler(config, parameters=Parameters())


@pytest.fixture
def logits(config: ModelConfig, kinds: list[Sequence]) -> Tensor:
    return torch.randn(len(kinds), config.vocab_size, generator=torch.Generator().manual_seed(2))


def sample_each(sampler: Sampler, logits: Tensor, sequences: list[Sequence]) -> list[SampledToken]:
    return [sampler.sample(logits[row : row + 1].clone(), [item])[0] for row, item in enumerate(sequences)]


def test_a_mixed_step_gives_what_each_row_gives_alone(sampler: Sampler, logits: Tensor, kinds: list[Sequence]) -> None:
    together = sampler.sample(logits.clone(), kinds)
    for item in kinds:
        if item.generator is not None:
            item.generator.manual_seed(item.params.seed or 0)
    assert together == sample_each(sampler, logits, kinds)
    assert kinds[4].constraint.accepted == [2, 2]


def test_greedy_rows_take_their_own_most_likely(sampler: Sampler, logits: Tensor, kinds: list[Sequence]) -> None:
    tokens = sampler.sample(logits.clone(), [kinds[0]] * len(logits))
    assert [token.token_id for token in tokens] == logits.argmax(-1).tolist()
    assert all(token.logprob is None and token.top_logprobs == () for token in tokens)


def test_logprobs_are_of_the_raw_distribution(sampler: Sampler, logits: Tensor, kinds: list[Sequence]) -> None:
    tokens = sampler.sample(logits.clone(), kinds)
    expected = logits.log_softmax(-1)
    assert [len(token.top_logprobs) for token in tokens] == [0, 3, 0, 0, 1]
    for row in (1, 3, 4):
        assert tokens[row].logprob == pytest.approx(float(expected[row, tokens[row].token_id]))
    assert tokens[4].token_id == 2
    assert tokens[4].top_logprobs[0][0] == int(logits[4].argmax())
