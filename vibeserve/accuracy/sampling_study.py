"""Ways of drawing tokens, right and wrong, under the sampling tests of the probes: how often each is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, islice

import numpy as np

from vibeserve.accuracy.study import SamplingRow
from vibeserve.modalities.text.probe_sampling import (
    NUM_DRAWS,
    Floats,
    SamplingTest,
    is_refused,
    robust_top_p,
    wanted,
)

NUM_TRIALS = 40
"""of one way and one prompt"""
ROUNDING_NATS = 0.03
"""of the noise on the log-probabilities of an honest server: twice the mean difference of bf16"""
NUCLEUS = -1.0
"""as `top_p`: one that suits the prompt's distribution"""


@dataclass(frozen=True, kw_only=True)
class _Way:
    """What is asked, and what is done instead."""

    name: str
    is_wrong: bool
    temperature: float = 1.0
    top_p: float = 1.0
    served_temperature: float = 1.0
    served_top_p: float = 1.0
    top_k: int = 0
    num_seeds: int = 0
    """only so many different draws; 0 = all are independent"""
    noise: float = 0.0


WAYS = (
    _Way(name="as asked, exact", is_wrong=False),
    _Way(name="as asked, rounded", is_wrong=False, noise=ROUNDING_NATS),
    _Way(
        name="T = 0.5 as asked, rounded", is_wrong=False, temperature=0.5, served_temperature=0.5, noise=ROUNDING_NATS
    ),
    _Way(name="top_p as asked, rounded", is_wrong=False, top_p=NUCLEUS, served_top_p=NUCLEUS, noise=ROUNDING_NATS),
    _Way(name="greedy where T = 1 is asked", is_wrong=True, top_k=1),
    _Way(name="T = 0.5 where 1 is asked", is_wrong=True, served_temperature=0.5),
    _Way(name="T = 0.8 where 1 is asked", is_wrong=True, served_temperature=0.8),
    _Way(name="T = 0.9 where 1 is asked", is_wrong=True, served_temperature=0.9),
    _Way(name="T = 1 where 0.5 is asked", is_wrong=True, temperature=0.5),
    _Way(name="top_p ignored", is_wrong=True, top_p=NUCLEUS),
    _Way(name="top_k = 20 unasked", is_wrong=True, top_k=20),
    _Way(name="one seed for all", is_wrong=True, num_seeds=1),
    _Way(name="four seeds for all", is_wrong=True, num_seeds=4),
)


def sampling_rows(distributions: Sequence[Sequence[float]], *, seed: int) -> tuple[SamplingRow, ...]:
    """Every way over prompts with these log-probabilities of the next token."""
    tests: dict[tuple[int, float, float], SamplingTest] = {}
    rows: list[SamplingRow] = []
    for way in WAYS:
        smallest: list[float] = []
        for number, logprobs in enumerate(distributions):
            top_p = robust_top_p(logprobs) if way.top_p == NUCLEUS else way.top_p
            key = (number, way.temperature, top_p)
            if key not in tests:
                asked = wanted(logprobs, temperature=way.temperature, top_p=top_p)
                tests[key] = SamplingTest(asked, num_draws=NUM_DRAWS, seed=seed)
            generator = np.random.default_rng([seed, len(rows), number])
            draw = _drawer(logprobs, way, top_p=top_p, generator=generator)
            smallest += [min(tests[key].p_values(draw()).values()) for _ in range(NUM_TRIALS)]
        refused = sum(is_refused(value) for value in smallest) / len(smallest)
        median = sorted(smallest)[len(smallest) // 2]
        rows.append(
            SamplingRow(
                name=way.name, is_wrong=way.is_wrong, num_draws=NUM_DRAWS, refused=refused, median_p=median
            )
        )  # fmt: skip
    return tuple(rows)


def _drawer(
    logprobs: Sequence[float], way: _Way, *, top_p: float, generator: np.random.Generator
) -> Callable[[], list[int]]:
    """A function that serves `NUM_DRAWS` draws in this way."""
    values = np.asarray(logprobs, dtype=np.float64)
    values = values + way.noise * generator.standard_normal(len(values))
    served_top_p = top_p if way.served_top_p == NUCLEUS else way.served_top_p
    probs: Floats = wanted(values.tolist(), temperature=way.served_temperature, top_p=served_top_p).probs
    if way.top_k:
        least = np.sort(probs)[-way.top_k]
        probs = np.where(probs >= least, probs, 0.0)
    probs = probs / probs.sum()

    def draw() -> list[int]:
        num = way.num_seeds or NUM_DRAWS
        different = generator.choice(len(probs), size=num, p=probs).tolist()
        return list(islice((different[place % num] for place in count()), NUM_DRAWS))

    return draw
