"""Several sequences per step: order, slots, and replies that do not depend on the neighbours."""

from __future__ import annotations

import asyncio

import pytest
from local_server import LocalServer
from runtime.interfaces import ModelConfig, SamplingParams, Sequence
from runtime.kv_cache import KVCache
from runtime.parameters import Parameters
from runtime.scheduler import MAX_PREFILL_ROWS, Scheduler
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


def test_prompts_go_first_and_then_all_decode(scheduler: Scheduler, tokenizer: Tokenizer) -> None:
    first, second = sequence(tokenizer, 5), sequence(tokenizer, 7)
    scheduler.add(first)
    step = scheduler.plan()
    assert step is not None and step.batch.num_rows == 5
    compute(first)
    scheduler.add(second)
    step = scheduler.plan()
    assert step is not None and step.sequences == (second,)
    compute(second)
    step = scheduler.plan()
    assert step is not None and step.sequences == step.sampled == (first, second)
    assert step.batch.num_decode_rows == 2


def test_prompts_beyond_the_budget_wait_in_order(scheduler: Scheduler, tokenizer: Tokenizer) -> None:
    sizes = (MAX_PREFILL_ROWS - 10, 20, 5)
    prompts = [sequence(tokenizer, size) for size in sizes]
    for prompt in prompts:
        scheduler.add(prompt)
    step = scheduler.plan()
    assert step is not None and step.sequences == (prompts[0],)
    compute(prompts[0])
    step = scheduler.plan()
    assert step is not None and step.sequences == (prompts[1], prompts[2])


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

    def text(pending: object) -> str:
        return "".join(event["text"] for event in pending.result(timeout=120).choice_events)  # type: ignore[attr-defined]

    alone = [text(server.start("POST", "/v1/completions", body=body)) for body in bodies]
    pending = [server.start("POST", "/v1/completions", body=body) for body in bodies]
    assert [text(one) for one in pending] == alone
