"""Sampling from known logits."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import torch
from runtime.interfaces import ModelConfig, SampledToken, SamplingParams, Sequence
from runtime.parameters import Parameters
from runtime.sampler import Sampler
from runtime.tokenizer import Tokenizer
from torch import Tensor

GREEDY = SamplingParams(max_tokens=4, temperature=0.0)


@pytest.fixture(scope="module")
def sampler(config: ModelConfig) -> Sampler:
    return Sampler(config, parameters=Parameters())


def sequence(tokenizer: Tokenizer, params: SamplingParams) -> Sequence:
    generator = None
    if params.temperature > 0:
        generator = torch.Generator()
        generator.manual_seed(params.seed or 0)
    return Sequence(
        request_id="test",
        index=0,
        prompt_token_ids=[1],
        params=params,
        detokenizer=tokenizer.detokenizer(()),
        sink=asyncio.Queue(),
        generator=generator,
    )


def logits_of(config: ModelConfig, probs: dict[int, float]) -> Tensor:
    logits = torch.full((1, config.vocab_size), -30.0)
    for token_id, prob in probs.items():
        logits[0, token_id] = torch.tensor(prob).log()
    return logits


def draws(sampler: Sampler, logits: Tensor, drawn: Sequence, count: int) -> list[SampledToken]:
    return [sampler.sample(logits.clone(), [drawn])[0] for _ in range(count)]


def test_greedy_takes_the_most_likely(sampler: Sampler, config: ModelConfig, tokenizer: Tokenizer) -> None:
    logits = logits_of(config, {3: 0.2, 7: 0.5, 11: 0.3})
    assert sampler.sample(logits, [sequence(tokenizer, GREEDY)])[0].token_id == 7


def test_frequencies_follow_the_distribution(sampler: Sampler, config: ModelConfig, tokenizer: Tokenizer) -> None:
    logits = logits_of(config, {3: 0.2, 7: 0.5, 11: 0.3})
    drawn = sequence(tokenizer, SamplingParams(max_tokens=4, temperature=1.0, seed=5))
    ids = [token.token_id for token in draws(sampler, logits, drawn, 600)]
    # three standard deviations of a binomial with 600 draws
    assert ids.count(7) / 600 == pytest.approx(0.5, abs=0.062)
    assert ids.count(3) / 600 == pytest.approx(0.2, abs=0.05)


def test_top_p_drops_the_tail(sampler: Sampler, config: ModelConfig, tokenizer: Tokenizer) -> None:
    logits = logits_of(config, {3: 0.2, 7: 0.5, 11: 0.3})
    drawn = sequence(tokenizer, SamplingParams(max_tokens=4, temperature=1.0, top_p=0.6, seed=5))
    assert {token.token_id for token in draws(sampler, logits, drawn, 200)} == {7, 11}
    greedy = sequence(tokenizer, SamplingParams(max_tokens=4, temperature=1.0, top_p=0.01, seed=5))
    assert {token.token_id for token in draws(sampler, logits, greedy, 20)} == {7}


def test_a_low_temperature_sharpens(sampler: Sampler, config: ModelConfig, tokenizer: Tokenizer) -> None:
    logits = logits_of(config, {3: 0.2, 7: 0.5, 11: 0.3})
    drawn = sequence(tokenizer, SamplingParams(max_tokens=4, temperature=0.05, seed=5))
    assert {token.token_id for token in draws(sampler, logits, drawn, 50)} == {7}


def test_a_seeded_draw_does_not_depend_on_the_batch(
    sampler: Sampler, config: ModelConfig, tokenizer: Tokenizer
) -> None:
    params = SamplingParams(max_tokens=4, temperature=1.0, seed=9)
    logits = torch.randn(3, config.vocab_size, generator=torch.Generator().manual_seed(0))
    alone = sampler.sample(logits[1:2].clone(), [sequence(tokenizer, params)])[0]
    others = [sequence(tokenizer, replace(params, seed=seed)) for seed in (1, 2)]
    together = sampler.sample(logits.clone(), [others[0], sequence(tokenizer, params), others[1]])
    assert together[1].token_id == alone.token_id


def test_logprobs_are_of_the_raw_distribution(sampler: Sampler, config: ModelConfig, tokenizer: Tokenizer) -> None:
    logits = logits_of(config, {3: 0.2, 7: 0.5, 11: 0.3})
    params = SamplingParams(max_tokens=4, temperature=0.3, top_p=0.5, seed=0, num_logprobs=2)
    (token,) = draws(sampler, logits, sequence(tokenizer, params), 1)
    assert [token_id for token_id, _ in token.top_logprobs] == [7, 11]
    assert token.top_logprobs[0][1] == pytest.approx(float(torch.tensor(0.5).log()), abs=1e-4)
    without = sampler.sample(logits.clone(), [sequence(tokenizer, GREEDY)])[0]
    assert (without.logprob, without.top_logprobs) == (None, ())
