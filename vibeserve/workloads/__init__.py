"""Seeded, nonced request traces by workload kind. Data only: `client` drives them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vibeserve.contract import Pool
from vibeserve.core.nouns import PromptRequest
from vibeserve.errors import SpecError
from vibeserve.spec import Workload
from vibeserve.workloads.chat import chat_stream

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["WORKLOAD_KINDS", "Pool", "request_stream"]

WORKLOAD_KINDS = {"chat": chat_stream}


def request_stream(
    workload: Workload, *, tokenizer: Tokenizer, pool: Pool, seed: int, logprobs_share: int = 0
) -> Iterator[PromptRequest]:
    """Endless requests of a declared workload, a pure function of the arguments.

    `logprobs_share`: one request in every block of so many asks for log-probabilities, at a random place in its block;
    0 = none. Open-loop arrival times are the client's. Raises `SpecError` for an unknown kind or impossible lengths.
    """
    if workload.kind not in WORKLOAD_KINDS:
        raise SpecError(
            f"workload.kind '{workload.kind}' is unknown", hint=f"one of: {', '.join(sorted(WORKLOAD_KINDS))}"
        )
    return WORKLOAD_KINDS[workload.kind](
        workload, tokenizer=tokenizer, pool=pool, seed=seed, logprobs_share=logprobs_share
    )
