"""What the streams of all kinds share: their random source, their length checks, and who carries log-probabilities."""

from __future__ import annotations

import random
from collections.abc import Iterator

from vibeserve.contract import Pool
from vibeserve.errors import SpecError
from vibeserve.spec import Workload
from vibeserve.workloads.exact_text import MIN_PROMPT_TOKENS

LOGPROBS = 5


def seeded_random(workload: Workload, *, pool: Pool, seed: int, part: str = "") -> random.Random:
    """The stream's random source. Seeding with text is stable over processes and Python versions, unlike hash()."""
    return random.Random(f"{workload.kind}-{pool.value}-{seed}{f'-{part}' if part else ''}")


def logprobs_places(generator: random.Random, *, share: int) -> Iterator[int]:
    """Per request how many top log-probabilities it asks for: one request in every block of `share`, at a random place
    in its block; 0 = none ever. Draws from `generator` at the start of a block."""
    number = chosen = 0
    while True:
        if share and number % share == 0:
            chosen = number + generator.randrange(share)
        yield LOGPROBS if share and number == chosen else 0
        number += 1


def check_lengths(workload: Workload, *, least_prompt_tokens: int = MIN_PROMPT_TOKENS) -> None:
    """SpecError for ranges that no prompt can meet."""
    problems = []
    for name in ("prompt_tokens", "output_tokens"):
        low, high = getattr(workload, f"{name}_min"), getattr(workload, f"{name}_max")
        if not 0 < low <= high:
            problems.append(f"workload.{name}_min {low} and {name}_max {high}: need 0 < min <= max")
    if 0 < workload.prompt_tokens_min < least_prompt_tokens:
        low = workload.prompt_tokens_min
        problems.append(f"workload.prompt_tokens_min {low}: at least {least_prompt_tokens}, the nonce needs room")
    if problems:
        raise SpecError(f"the {workload.kind} workload's lengths cannot be met", problems=problems)
