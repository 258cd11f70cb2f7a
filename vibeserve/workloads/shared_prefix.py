"""Workload `shared_prefix`: a few long prefixes, each shared by many requests, and a part behind it that is unique.

The prefixes are drawn from the seed and open with a nonce, so a server has to compute each of them once in every load.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vibeserve.contract import Pool
from vibeserve.core.nouns import PromptRequest
from vibeserve.errors import SpecError
from vibeserve.spec import Workload
from vibeserve.workloads.exact_text import MAX_ATTEMPTS, MIN_PROMPT_TOKENS, exact_prompt
from vibeserve.workloads.sampling import check_lengths, logprobs_places, seeded_random

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SEPARATOR = "\n\n"


def shared_prefix_stream(
    workload: Workload, *, tokenizer: Tokenizer, pool: Pool, seed: int, logprobs_share: int
) -> Iterator[PromptRequest]:
    """Endless requests over `num_prefixes` prefixes of exactly `shared_prefix_tokens` tokens, drawn uniformly.

    `prompt_tokens_min` and `_max` are the range of the unique part; a prompt has the sum of both.
    """
    check_lengths(workload)
    problems = []
    if workload.shared_prefix_tokens < MIN_PROMPT_TOKENS:
        what = f"workload.shared_prefix_tokens {workload.shared_prefix_tokens}"
        problems.append(f"{what}: at least {MIN_PROMPT_TOKENS}, the nonce needs room")
    if workload.num_prefixes < 1:
        problems.append(f"workload.num_prefixes {workload.num_prefixes}: at least 1")
    if problems:
        raise SpecError("the shared_prefix workload cannot be met", problems=problems)
    return _stream(workload, tokenizer=tokenizer, pool=pool, seed=seed, logprobs_share=logprobs_share)


def _stream(
    workload: Workload, *, tokenizer: Tokenizer, pool: Pool, seed: int, logprobs_share: int
) -> Iterator[PromptRequest]:
    generator = seeded_random(workload, pool=pool, seed=seed)
    prefixes: dict[int, str] = {}
    for number, logprobs in enumerate(logprobs_places(generator, share=logprobs_share)):
        index = generator.randrange(workload.num_prefixes)
        if index not in prefixes:
            prefixes[index] = draw_prefix(workload, index=index, tokenizer=tokenizer, pool=pool, seed=seed)
        num_unique = generator.randint(workload.prompt_tokens_min, workload.prompt_tokens_max)
        num_tokens = workload.shared_prefix_tokens + num_unique
        prompt = exact_prompt(
            num_tokens, generator=generator, pool=pool, tokenizer=tokenizer, head=SEPARATOR, prefix=prefixes[index]
        )
        yield PromptRequest(
            request_id=f"{pool.value}-{seed}-{number}",
            prompt=prompt,
            num_prompt_tokens=num_tokens,
            max_tokens=generator.randint(workload.output_tokens_min, workload.output_tokens_max),
            logprobs=logprobs,
        )


def draw_prefix(workload: Workload, *, index: int, tokenizer: Tokenizer, pool: Pool, seed: int) -> str:
    """Prefix number `index` of a seed. It ends where a separator begins a new token, whatever follows."""
    generator = seeded_random(workload, pool=pool, seed=seed, part=f"prefix-{index}")
    for _ in range(MAX_ATTEMPTS):
        text = exact_prompt(workload.shared_prefix_tokens, generator=generator, pool=pool, tokenizer=tokenizer)
        ids = tokenizer.encode(text).ids
        if all(tokenizer.encode(f"{text}{SEPARATOR}{first}").ids[: len(ids)] == ids for first in "0a"):
            return text
    raise SpecError(
        f"no prefix of {workload.shared_prefix_tokens} tokens ends at a token's border after {MAX_ATTEMPTS} attempts",
        hint="the model's tokenizer must split text at line breaks",
    )
