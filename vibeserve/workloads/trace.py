"""Workload `trace`: replays recorded requests in their order, with their lengths or texts and their arrivals.

A load starts at a random place of the trace, goes on to its end and begins again. Where the workload declares no reuse,
a nonce opens every prompt: the trace's texts come again, a reply from a cache must not pay.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

from vibeserve.contract import Pool
from vibeserve.core.nouns import PromptRequest
from vibeserve.errors import SpecError
from vibeserve.spec import Workload
from vibeserve.workloads.exact_text import NONCE_HEX_DIGITS, draw_nonce, exact_prompt
from vibeserve.workloads.sampling import logprobs_places, seeded_random
from vibeserve.workloads.trace_file import HINT, MAX_SHOWN, TraceLine, mean_rate_per_s, read_trace

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MAX_NONCE_TOKENS = NONCE_HEX_DIGITS + 1
"""a token for every digit, and one for the line break behind them"""


def trace_stream(
    workload: Workload, *, tokenizer: Tokenizer, pool: Pool, seed: int, logprobs_share: int
) -> Iterator[PromptRequest]:
    """Endless requests of the file at `workload.trace`. `arrival_s` ascends from 0 in the trace's own seconds, and is 0
    throughout where the trace records no arrivals.

    Raises SpecError with `file:line` for a line that is wrong or longer than the workload declares.
    """
    lines = read_trace(workload)
    _check_texts(workload, lines, tokenizer=tokenizer)
    return _stream(workload, lines, tokenizer=tokenizer, pool=pool, seed=seed, logprobs_share=logprobs_share)


def _stream(
    workload: Workload,
    lines: tuple[TraceLine, ...],
    *,
    tokenizer: Tokenizer,
    pool: Pool,
    seed: int,
    logprobs_share: int,
) -> Iterator[PromptRequest]:
    generator = seeded_random(workload, pool=pool, seed=seed)
    replayed = replay(lines, start=generator.randrange(len(lines)))
    for number, logprobs in enumerate(logprobs_places(generator, share=logprobs_share)):
        line, arrival_s = next(replayed)
        prompt = _prompt(workload, line, generator=generator, pool=pool, tokenizer=tokenizer)
        yield PromptRequest(
            request_id=f"{pool.value}-{seed}-{number}",
            arrival_s=arrival_s,
            prompt=prompt,
            num_prompt_tokens=line.prompt_tokens or len(tokenizer.encode(prompt).ids),
            max_tokens=line.output_tokens,
            logprobs=logprobs,
        )


def replay(lines: tuple[TraceLine, ...], *, start: int) -> Iterator[tuple[TraceLine, float]]:
    """Lines and arrivals from line `start` on, for ever. Between the last line and the first lies one mean gap."""
    rate_per_s = mean_rate_per_s(lines)
    length_s = (lines[-1].arrival_s or 0.0) + (1 / rate_per_s if rate_per_s else 0.0)
    origin_s = lines[start].arrival_s or 0.0
    index, lap = start, 0
    while True:
        line = lines[index]
        yield line, round(lap * length_s + (line.arrival_s or 0.0) - origin_s, 6)
        index += 1
        if index == len(lines):
            index, lap = 0, lap + 1


def _prompt(workload: Workload, line: TraceLine, *, generator: random.Random, pool: Pool, tokenizer: Tokenizer) -> str:
    if line.prompt is None:
        return exact_prompt(line.prompt_tokens, generator=generator, pool=pool, tokenizer=tokenizer)
    return line.prompt if workload.reuse == "prefix" else f"{draw_nonce(generator)}\n{line.prompt}"


def _check_texts(workload: Workload, lines: tuple[TraceLine, ...], *, tokenizer: Tokenizer) -> None:
    """SpecError for texts outside of the declared range, whatever nonce opens them."""
    extra = 0 if workload.reuse == "prefix" else MAX_NONCE_TOKENS
    low, high = workload.prompt_tokens_min, workload.prompt_tokens_max
    problems = []
    name = workload.trace.rpartition("/")[2]
    for number, count in _text_lengths(lines, tokenizer):
        with_nonce = f" and up to {extra} of the nonce" if extra else ""
        if count < low:
            problems.append(f"{name}:{number}: prompt of {count} tokens is below workload.prompt_tokens_min {low}")
        elif count + extra > high:
            what = f"prompt of {count} tokens{with_nonce}"
            problems.append(f"{name}:{number}: {what} is above workload.prompt_tokens_max {high}")
    if problems:
        shown = problems[:MAX_SHOWN] + ([f"and {len(problems) - MAX_SHOWN} more"] if len(problems) > MAX_SHOWN else [])
        raise SpecError(f"workload.trace: {name} cannot be replayed", problems=shown, hint=HINT)


@lru_cache(maxsize=2)
def _text_lengths(lines: tuple[TraceLine, ...], tokenizer: Tokenizer) -> tuple[tuple[int, int], ...]:
    """(line number, tokens) of every line that has a text. Every load asks again, hence the cache."""
    texts = [(line.number, line.prompt) for line in lines if line.prompt is not None]
    encoded = tokenizer.encode_batch([text for _, text in texts])
    return tuple((number, len(item.ids)) for (number, _), item in zip(texts, encoded, strict=True))
