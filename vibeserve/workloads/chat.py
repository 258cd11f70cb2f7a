"""Workload `chat`: a nonce, then running text, to a prompt of an exact number of tokens; fixed output lengths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vibeserve.contract import Pool
from vibeserve.core.nouns import PromptRequest
from vibeserve.spec import Workload
from vibeserve.workloads.exact_text import exact_prompt
from vibeserve.workloads.sampling import check_lengths, logprobs_places, seeded_random

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def chat_stream(
    workload: Workload, *, tokenizer: Tokenizer, pool: Pool, seed: int, logprobs_share: int
) -> Iterator[PromptRequest]:
    """Endless chat requests; lengths are uniform in the declared ranges, ends included."""
    check_lengths(workload)
    return _stream(workload, tokenizer=tokenizer, pool=pool, seed=seed, logprobs_share=logprobs_share)


def _stream(
    workload: Workload, *, tokenizer: Tokenizer, pool: Pool, seed: int, logprobs_share: int
) -> Iterator[PromptRequest]:
    generator = seeded_random(workload, pool=pool, seed=seed)
    for number, logprobs in enumerate(logprobs_places(generator, share=logprobs_share)):
        num_tokens = generator.randint(workload.prompt_tokens_min, workload.prompt_tokens_max)
        max_tokens = generator.randint(workload.output_tokens_min, workload.output_tokens_max)
        yield PromptRequest(
            request_id=f"{pool.value}-{seed}-{number}",
            prompt=exact_prompt(num_tokens, generator=generator, pool=pool, tokenizer=tokenizer),
            num_prompt_tokens=num_tokens,
            max_tokens=max_tokens,
            logprobs=logprobs,
        )
