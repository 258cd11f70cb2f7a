"""Prompts of an exact number of tokens: a nonce, then running text of a pool."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vibeserve.contract import Pool
from vibeserve.errors import SpecError
from vibeserve.workloads.text_pools import paragraphs

if TYPE_CHECKING:
    from tokenizers import Tokenizer

NONCE_HEX_DIGITS = 12
"""48 random bits: no two requests of any run share their first tokens"""
MIN_PROMPT_TOKENS = 16
"""the nonce and a few words must fit"""
MAX_ATTEMPTS = 64


def draw_nonce(generator: random.Random) -> str:
    """Hexadecimal digits that open a prompt."""
    return f"{generator.getrandbits(4 * NONCE_HEX_DIGITS):0{NONCE_HEX_DIGITS}x}"


def exact_prompt(
    num_tokens: int, *, generator: random.Random, pool: Pool, tokenizer: Tokenizer, head: str = "", prefix: str = ""
) -> str:
    """`prefix`, `head`, a nonce and running text that together encode to exactly `num_tokens`, special tokens included.

    With a `prefix` its tokens stay what they are alone, so that a server that keeps them can use them. A cut that does
    not survive the round trip is drawn again. Raises SpecError for a tokenizer that cannot do it.
    """
    kept = tokenizer.encode(prefix).ids if prefix else []
    for _ in range(MAX_ATTEMPTS):
        opening = f"{prefix}{head}{draw_nonce(generator)}"
        text = _running_text(opening, num_tokens, generator=generator, pool=pool, tokenizer=tokenizer)
        encoded = tokenizer.encode(text)
        # a token's end as characters of the text: cutting there keeps the text as it was written
        for end in range(num_tokens, num_tokens + 3):
            cut = text[: encoded.offsets[end - 1][1]].rstrip()
            ids = tokenizer.encode(cut).ids
            if len(ids) == num_tokens and ids[: len(kept)] == kept:
                return cut
    raise SpecError(
        f"no text of exactly {num_tokens} tokens found in {MAX_ATTEMPTS} attempts",
        hint="the model's tokenizer must round-trip plain ASCII text",
    )


def _running_text(opening: str, num_tokens: int, *, generator: random.Random, pool: Pool, tokenizer: Tokenizer) -> str:
    """The opening and whole paragraphs in random order, a little longer than needed."""
    source = paragraphs(pool)
    text = opening
    while True:
        # five characters a token is above what real text needs, so one pass is the rule
        while len(text) < 5 * num_tokens:
            text += "\n\n" + generator.choice(source)
        if len(tokenizer.encode(text).ids) >= num_tokens + 4:
            return text
        text += "\n\n" + generator.choice(source)


def fit_middle(
    head: str, middle: str, tail: str, *, borders: Sequence[int], num_tokens: int, tokenizer: Tokenizer
) -> tuple[str, int]:
    """`head`, as much of `middle` as fits, and `tail`, in at most `num_tokens` tokens; with the tokens that it takes.

    `middle` is cut at one of the ascending `borders` (characters from its start). Where nothing fits it is left out,
    and the count is above `num_tokens` if the rest is.
    """
    low, high = 0, len(borders)
    best = head + tail, len(tokenizer.encode(head + tail).ids)
    while low < high:
        half = (low + high) // 2
        text = head + middle[: borders[half]] + tail
        count = len(tokenizer.encode(text).ids)
        if count <= num_tokens:
            best, low = (text, count), half + 1
        else:
            high = half
    return best
