"""Workload `chat`: a nonce, then running text, to a prompt of an exact number of tokens; fixed output lengths."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from vibeserve.contract import Pool
from vibeserve.core.nouns import PromptRequest
from vibeserve.errors import SpecError
from vibeserve.spec import Workload
from vibeserve.workloads.text_pools import paragraphs

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NONCE_HEX_DIGITS = 12
"""48 random bits: no two requests of any run share their first tokens"""
MIN_PROMPT_TOKENS = 16
"""the nonce and a few words must fit"""
LOGPROBS = 5
MAX_ATTEMPTS = 64


def chat_stream(
    workload: Workload, *, tokenizer: Tokenizer, pool: Pool, seed: int, logprobs_share: int
) -> Iterator[PromptRequest]:
    """Endless chat requests; lengths are uniform in the declared ranges, ends included."""
    _check_lengths(workload)
    return _stream(workload, tokenizer=tokenizer, pool=pool, seed=seed, logprobs_share=logprobs_share)


def _stream(
    workload: Workload, *, tokenizer: Tokenizer, pool: Pool, seed: int, logprobs_share: int
) -> Iterator[PromptRequest]:
    # seeding with text is stable over processes and Python versions, unlike hash()
    generator = random.Random(f"{workload.kind}-{pool.value}-{seed}")
    number = 0
    chosen = 0
    while True:
        if logprobs_share and number % logprobs_share == 0:
            chosen = number + generator.randrange(logprobs_share)
        num_tokens = generator.randint(workload.prompt_tokens_min, workload.prompt_tokens_max)
        max_tokens = generator.randint(workload.output_tokens_min, workload.output_tokens_max)
        yield PromptRequest(
            request_id=f"{pool.value}-{seed}-{number}",
            prompt=_exact_prompt(num_tokens, generator=generator, pool=pool, tokenizer=tokenizer),
            num_prompt_tokens=num_tokens,
            max_tokens=max_tokens,
            logprobs=LOGPROBS if logprobs_share and number == chosen else 0,
        )
        number += 1


def _check_lengths(workload: Workload) -> None:
    problems = []
    for name in ("prompt_tokens", "output_tokens"):
        low, high = getattr(workload, f"{name}_min"), getattr(workload, f"{name}_max")
        if not 0 < low <= high:
            problems.append(f"workload.{name}_min {low} and {name}_max {high}: need 0 < min <= max")
    if 0 < workload.prompt_tokens_min < MIN_PROMPT_TOKENS:
        low = workload.prompt_tokens_min
        problems.append(f"workload.prompt_tokens_min {low}: at least {MIN_PROMPT_TOKENS}, the nonce needs room")
    if problems:
        raise SpecError("the chat workload's lengths cannot be met", problems=problems)


def _exact_prompt(num_tokens: int, *, generator: random.Random, pool: Pool, tokenizer: Tokenizer) -> str:
    """Text that encodes to exactly `num_tokens`; a cut that does not survive the round trip is drawn again."""
    for _ in range(MAX_ATTEMPTS):
        nonce = f"{generator.getrandbits(4 * NONCE_HEX_DIGITS):0{NONCE_HEX_DIGITS}x}"
        text = _running_text(nonce, num_tokens, generator=generator, pool=pool, tokenizer=tokenizer)
        encoded = tokenizer.encode(text)
        # a token's end as characters of the text: cutting there keeps the text as it was written
        for end in range(num_tokens, num_tokens + 3):
            cut = text[: encoded.offsets[end - 1][1]].rstrip()
            if len(tokenizer.encode(cut).ids) == num_tokens:
                return cut
    raise SpecError(
        f"no text of exactly {num_tokens} tokens found in {MAX_ATTEMPTS} attempts",
        hint="the model's tokenizer must round-trip plain ASCII text",
    )


def _running_text(nonce: str, num_tokens: int, *, generator: random.Random, pool: Pool, tokenizer: Tokenizer) -> str:
    """Nonce and whole paragraphs in random order, a little longer than needed."""
    source = paragraphs(pool)
    text = nonce
    while True:
        # five characters a token is above what real text needs, so one pass is the rule
        while len(text) < 5 * num_tokens:
            text += "\n\n" + generator.choice(source)
        if len(tokenizer.encode(text).ids) >= num_tokens + 4:
            return text
        text += "\n\n" + generator.choice(source)
