"""Workload `text_to_image`: a nonce and running text as the prompt, a seed, and the declared guidance and steps,
or temperature.

No two requests share a prompt or a seed, so that no image may come twice.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from vibeserve.contract import Pool, Request
from vibeserve.errors import SpecError
from vibeserve.spec import Workload
from vibeserve.workloads.exact_text import exact_prompt
from vibeserve.workloads.sampling import check_lengths, seeded_random

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SEED_BITS = 32
"""of a request's seed: torch's CPU generator reads no more, so that larger seeds would be smaller ones in disguise"""
MIN_GUIDANCE = 1.0


def text_to_image_stream(
    workload: Workload, *, tokenizer: Tokenizer, size: str, pool: Pool, seed: int
) -> Iterator[Request]:
    """Endless requests for images of `size` (`WIDTHxHEIGHT`), a pure function of the arguments.

    `payload` of each: `prompt`, `size`, `steps`, `guidance`, `seed`. SpecError for what no image can be drawn with.
    """
    if workload.num_steps < 1:
        raise SpecError("the text_to_image workload needs steps", problems=[f"workload.num_steps {workload.num_steps}"])
    how = {"steps": workload.num_steps}
    return _seeded(workload, tokenizer=tokenizer, size=size, pool=pool, seed=seed, how=how)


def text_to_codes_stream(
    workload: Workload, *, tokenizer: Tokenizer, size: str, pool: Pool, seed: int
) -> Iterator[Request]:
    """The same for models that draw token by token: `payload` has `temperature` in place of `steps`."""
    how = {"temperature": workload.temperature}
    return _seeded(workload, tokenizer=tokenizer, size=size, pool=pool, seed=seed, how=how)


def _seeded(
    workload: Workload, *, tokenizer: Tokenizer, size: str, pool: Pool, seed: int, how: Mapping[str, Any]
) -> Iterator[Request]:
    check_lengths(workload)
    generator = seeded_random(workload, pool=pool, seed=seed)
    name = f"{pool.value}-{seed}"
    return _stream(workload, tokenizer=tokenizer, size=size, pool=pool, generator=generator, name=name, how=how)


def _stream(
    workload: Workload, *, tokenizer: Tokenizer, size: str, pool: Pool, generator: random.Random, name: str,
    how: Mapping[str, Any],
) -> Iterator[Request]:  # fmt: skip
    number = 0
    while True:
        num_tokens = generator.randint(workload.prompt_tokens_min, workload.prompt_tokens_max)
        payload: dict[str, Any] = {
            "prompt": exact_prompt(num_tokens, generator=generator, pool=pool, tokenizer=tokenizer),
            "size": size,
            **how,
            "guidance": max(MIN_GUIDANCE, workload.guidance_scale),
            "seed": generator.getrandbits(SEED_BITS),
        }
        yield Request(request_id=f"{name}-{number}", payload=payload)
        number += 1
