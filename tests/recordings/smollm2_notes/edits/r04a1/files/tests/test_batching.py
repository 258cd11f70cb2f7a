"""Several sequences per step: order, slots, and replies that do not depend on the neighbours."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from local_server import LocalServer
from runtime.interfaces import ModelConfig, SamplingParams, Sequence
from runtime.kv_cache import KVCache
from runtime.parameters import Parameters
from runtime.scheduler import CUT_POSITIONS, Scheduler, cut
from runtime.tokenizer import Tokenizer

PROMPTS = ("Once upon a time", "The capital of France is", "def main():", "Water boils at")


@pytest.fixture
def scheduler(config: ModelConfig) -> Scheduler:
    return Scheduler(KVCache(config, parameters=Parameters()), parameters=Parameters())


def sequence(tokenizer: Tokenizer, num_tokens: int) -> Sequence:
    return Sequence(
        request_id="test",
        index=0,
        prompt_token_ids=list(range(num_tokens)),
        params=SamplingParams(max_tokens=4, temperature=0.0),
        detokenizer=tokenizer.detokenizer(()),
        sink=asyncio.Queue(),
    )


def compute(*sequences: Sequence) -> None:
    """As the engine does after a step that held all their rows."""
    for one in sequences:
        one.num_computed_tokens = one.num_tokens
        one.output_token_ids.append(1)


def test_decode_rows_ride_along_with_prompts(scheduler: Scheduler, tokenizer: Tokenizer) -> None:
    first, second = sequence(tokenizer, 5), sequence(tokenizer, 7)
    scheduler.add(first)
    step = scheduler.plan()
    assert step is not None and step.batch.num_rows == 5
    compute(first)
    scheduler.add(second)
    step = scheduler.plan()
    assert step is not None and step.sequences == step.sampled == (first, second)
    assert (step.batch.num_rows, step.batch.num_decode_rows) == (8, 1)
    compute(first, second)
    step = scheduler.plan()
    assert step is not None and step.sequences == step.sampled == (first, second)
    assert step.batch.num_decode_rows == 2


def test_prompts_are_cut_in_order_of_arrival(scheduler: Scheduler, tokenizer: Tokenizer) -> None:
    size = Parameters().prefill_chunk_tokens
    first, second = sequence(tokenizer, size + 10), sequence(tokenizer, 20)
    scheduler.add(first)
    scheduler.add(second)
    step = scheduler.plan()
    assert step is not None and step.sequences == (first,) and step.sampled == ()
    first.num_computed_tokens = size
    step = scheduler.plan()
    assert step is not None and step.sequences == step.sampled == (first, second)
    assert [segment.num_rows for segment in step.batch.segments] == [10, 20]


@pytest.mark.parametrize("num_tokens", [1, 2, 31, 33, 64, 65, 100, 129])
@pytest.mark.parametrize("num_rows", [1, 7, 31, 32, 50, 64, 128])
def test_cuts_leave_no_single_row(tokenizer: Tokenizer, num_tokens: int, num_rows: int) -> None:
    prompt = sequence(tokenizer, num_tokens)
    sizes = []
    while prompt.num_computed_tokens < num_tokens:
        sizes.append(cut(prompt, min(num_rows, num_tokens - prompt.num_computed_tokens)))
        prompt.num_computed_tokens += sizes[-1]
    assert sum(sizes) == num_tokens
    assert num_tokens == 1 or min(sizes) > 1
    assert max(sizes) <= max(num_rows, CUT_POSITIONS) + 1


def test_a_slot_is_given_back(scheduler: Scheduler, tokenizer: Tokenizer) -> None:
    many = [sequence(tokenizer, 3) for _ in range(Parameters().max_num_seqs + 1)]
    for one in many:
        scheduler.add(one)
    scheduler.plan()
    assert (scheduler.num_running, scheduler.num_waiting) == (Parameters().max_num_seqs, 1)
    scheduler.finish(many[0])
    scheduler.plan()
    assert (scheduler.num_running, scheduler.num_waiting) == (Parameters().max_num_seqs, 0)


def test_replies_are_the_same_alone_and_together(server: LocalServer) -> None:
    bodies = [{"prompt": prompt, "max_tokens": 12, "temperature": 0, "stream": True} for prompt in PROMPTS]

    def text(pending: Any) -> str:
        return "".join(event["text"] for event in pending.result(timeout=120).choice_events)

    alone = [text(server.start("POST", "/v1/completions", body=body)) for body in bodies]
    pending = [server.start("POST", "/v1/completions", body=body) for body in bodies]
    assert [text(one) for one in pending] == alone
