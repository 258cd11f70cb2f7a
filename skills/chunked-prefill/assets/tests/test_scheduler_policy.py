"""All decode rows in every step, the rest of its budget for prompts."""

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
    parameters = replace(Parameters(), max_num_seqs=4, max_step_tokens=6)
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


def test_a_long_prompt_is_cut_and_sampled_once_at_its_end(scheduler: Scheduler, tokenizer: Tokenizer) -> None:
    prompt = sequence(tokenizer, [1] * 14, name="a")
    scheduler.add(prompt)
    assert run(scheduler.plan()) == [("a", 6)]
    assert run(scheduler.plan()) == [("a", 6)]
    assert prompt.output_token_ids == []
    assert run(scheduler.plan()) == [("a", 2)]
    assert len(prompt.output_token_ids) == 1


def test_decode_rows_never_wait_for_a_prompt(scheduler: Scheduler, tokenizer: Tokenizer) -> None:
    scheduler.add(sequence(tokenizer, [1, 1], name="a"))
    run(scheduler.plan())
    scheduler.add(sequence(tokenizer, [1] * 9, name="b"))
    scheduler.add(sequence(tokenizer, [1] * 3, name="c"))
    assert run(scheduler.plan()) == [("a", 1), ("b", 5)]
    assert run(scheduler.plan()) == [("a", 1), ("b", 4), ("c", 1)]
    assert run(scheduler.plan()) == [("a", 1), ("b", 1), ("c", 2)]


def test_prompts_go_on_where_decode_rows_fill_the_budget(scheduler: Scheduler, tokenizer: Tokenizer) -> None:
    scheduler.max_step_tokens = 1
    for name in "ab":
        scheduler.add(sequence(tokenizer, [1], name=name))
    assert run(scheduler.plan()) == [("a", 1), ("b", 1)]
    scheduler.add(sequence(tokenizer, [1, 1], name="c"))
    assert run(scheduler.plan()) == [("a", 1), ("b", 1), ("c", 1)]
