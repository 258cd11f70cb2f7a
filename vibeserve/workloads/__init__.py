"""Seeded, nonced request streams by workload kind. Data only: `client` drives them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vibeserve.contract import Pool
from vibeserve.core.nouns import PromptRequest
from vibeserve.errors import SpecError
from vibeserve.spec import Workload
from vibeserve.workloads.chat import chat_stream
from vibeserve.workloads.code_edit import code_edit_stream
from vibeserve.workloads.constrained_json import constrained_json_stream
from vibeserve.workloads.edit_tasks import edit_task_problems
from vibeserve.workloads.loads import arrival_rate_per_s, at_load, longest_sequence_tokens
from vibeserve.workloads.runnable import RUNNABLE, not_yet
from vibeserve.workloads.shared_prefix import shared_prefix_stream
from vibeserve.workloads.trace import trace_stream
from vibeserve.workloads.trace_file import trace_problems

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = [
    "RUNNABLE",
    "WORKLOAD_FILES",
    "WORKLOAD_KINDS",
    "Pool",
    "arrival_rate_per_s",
    "at_load",
    "edit_task_problems",
    "longest_sequence_tokens",
    "not_yet",
    "request_stream",
    "trace_problems",
]

WORKLOAD_KINDS = {
    "chat": chat_stream,
    "shared_prefix": shared_prefix_stream,
    "code_edit": code_edit_stream,
    "constrained_json": constrained_json_stream,
    "trace": trace_stream,
}
"""kinds whose requests are prompts"""
WORKLOAD_FILES = ("trace", "edit_tasks")
"""fields of a workload that name a file of the user's; a kind has at most one"""


def request_stream(
    workload: Workload, *, tokenizer: Tokenizer, pool: Pool, seed: int, logprobs_share: int = 0
) -> Iterator[PromptRequest]:
    """Endless requests of a declared workload, a pure function of the arguments (and of the file of a trace).

    `logprobs_share`: one request in every block of so many asks for log-probabilities, at a random place in its block;
    0 = none. Arrival times of an open loop are the client's; those of a trace are in `arrival_s`, ascending. Raises
    `SpecError` for an unknown kind or impossible lengths.
    """
    if workload.kind not in WORKLOAD_KINDS:
        raise SpecError(
            f"workload.kind '{workload.kind}' is unknown", hint=f"one of: {', '.join(sorted(WORKLOAD_KINDS))}"
        )
    return WORKLOAD_KINDS[workload.kind](
        workload, tokenizer=tokenizer, pool=pool, seed=seed, logprobs_share=logprobs_share
    )
