"""Whole prompts first, then one row of everything that runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from runtime.interfaces import ModelConfig, Step
from runtime.kv_cache import KVCache
from runtime.parameters import Parameters
from runtime.scheduler import Scheduler
from runtime.tokenizer import Tokenizer
from test_batching import sequence


@pytest.fixture
def scheduler(config: ModelConfig) -> Scheduler:
    parameters = replace(Parameters(), max_num_seqs=4, max_prefill_tokens=8)
    return Scheduler(KVCache(config, parameters=parameters), parameters=parameters)


def run(step: Step | None) -> list[tuple[str, int]]:
    """Do what the engine does after a step; returns (request, number of rows) of its segments."""
    assert step is not None
    for segment, item in zip(step.batch.segments, step.sequences, strict=True):
        item.num_computed_tokens = segment.stop_position
    for item in step.sampled:
        item.output_token_ids.append(7)
    return [
        (item.request_id, segment.num_rows)
        for segment, item in zip(step.batch.segments, step.sequences, strict=True)
    ]


def test_nothing_to_do_is_no_step(scheduler: Scheduler) -> None:
    assert scheduler.plan() is None


def test_prompts_share_a_step_up_to_the_limit(scheduler: Scheduler, tokenizer: Tokenizer) -> None:
    for name, size in (("a", 5), ("b", 3), ("c", 2)):
        scheduler.add(sequence(tokenizer, [1] * size, name=name))
    assert run(scheduler.plan()) == [("a", 5), ("b", 3)]
    assert run(scheduler.plan()) == [("c", 2)]
    assert run(scheduler.plan()) == [("a", 1), ("b", 1), ("c", 1)]


def test_a_prompt_beyond_the_limit_goes_alone_and_whole(scheduler: Scheduler, tokenizer: Tokenizer) -> None:
    for name, size in (("a", 20), ("b", 2)):
        scheduler.add(sequence(tokenizer, [1] * size, name=name))
    assert run(scheduler.plan()) == [("a", 20)]


def test_a_newcomer_joins_between_steps_and_a_finished_one_leaves(scheduler: Scheduler, tokenizer: Tokenizer) -> None:
    first, second = sequence(tokenizer, [1, 1], name="a"), sequence(tokenizer, [1, 1, 1], name="b")
    scheduler.add(first)
    run(scheduler.plan())
    run(scheduler.plan())
    scheduler.add(second)
    assert run(scheduler.plan()) == [("b", 3)]
    assert run(scheduler.plan()) == [("a", 1), ("b", 1)]
    scheduler.finish(first)
    assert run(scheduler.plan()) == [("b", 1)]
