"""Predictions for tests: what the answer is, edited at random."""

from __future__ import annotations

import random
from collections.abc import Sequence

MAX_RUN = 6
KINDS = ("insert", "delete", "replace")


def edited(tokens: Sequence[int], *, share: float, generator: random.Random, vocab_size: int) -> list[int]:
    """`tokens` with about `share` of them edited, in runs of one to six."""
    chance = share / ((1 + MAX_RUN) / 2)
    made: list[int] = []
    index = 0
    while index < len(tokens):
        if generator.random() < chance:
            kind, num = generator.choice(KINDS), generator.randint(1, MAX_RUN)
            if kind != "delete":
                made += [generator.randrange(vocab_size) for _ in range(num)]
            if kind != "insert":
                index += num
                continue
        made.append(tokens[index])
        index += 1
    return made


def any_prediction(tokens: Sequence[int], *, generator: random.Random, vocab_size: int) -> list[int]:
    """One of any quality: exact, cut, longer, edited a little or a lot, in another order, useless, or empty."""
    kind = generator.randrange(8)
    other = [generator.randrange(vocab_size) for _ in range(generator.randint(1, 40))]
    if kind == 0:
        return [*tokens, *other]
    if kind == 1:
        return list(tokens[generator.randrange(len(tokens)) :])
    if kind == 2:
        middle = generator.randrange(len(tokens))
        return [*tokens[middle:], *tokens[:middle]]
    if kind == 3:
        return other
    if kind == 4:
        return [tokens[0]] * generator.randrange(60)
    return edited(tokens, share=generator.choice((0.02, 0.07, 0.15, 0.4)), generator=generator, vocab_size=vocab_size)
