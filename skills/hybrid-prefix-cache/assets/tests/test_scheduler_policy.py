"""Prompts are cut where they part, wait for a prefix that is being computed, and keep their order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from runtime.hybrid import HybridConfig
from runtime.interfaces import Sequence, Step
from runtime.kv_cache import KVCache
from runtime.parameters import Parameters
from runtime.scheduler import Scheduler
from runtime.tokenizer import Tokenizer
from test_batching import sequence

SHARED = [1, 2, 3, 4, 5, 6, 7]


@pytest.fixture
def scheduler(config: HybridConfig) -> Scheduler:
    parameters = replace(Parameters(), max_num_seqs=4, max_prefill_tokens=8, snapshot_tokens=16, min_shared_tokens=4)
    return Scheduler(KVCache(config, parameters=parameters), parameters=parameters)


def run(scheduler: Scheduler) -> list[tuple[str, int, int]]:
    """Plan a step and do what model and engine do; (request, start, number of rows) of its segments."""
    step: Step | None = scheduler.plan()
    assert step is not None
    scheduler.cache.begin(step.batch)
    scheduler.cache.end(step.batch)
    for segment, item in zip(step.batch.segments, step.sequences, strict=True):
        item.num_computed_tokens = segment.stop_position
    for item in step.sampled:
        item.output_token_ids.append(7)
    return [
        (item.request_id, segment.start_position, segment.num_rows)
        for segment, item in zip(step.batch.segments, step.sequences, strict=True)
    ]


def prompt(tokenizer: Tokenizer, *own: int, name: str) -> Sequence:
    return sequence(tokenizer, [*SHARED, *own], name=name)


def test_nothing_to_do_is_no_step(scheduler: Scheduler) -> None:
    assert scheduler.plan() is None


def test_a_prompt_is_cut_where_a_waiting_one_parts_and_that_one_goes_on_there(
    scheduler: Scheduler, tokenizer: Tokenizer
) -> None:
    for name, own in (("a", 8), ("b", 9)):
        scheduler.add(prompt(tokenizer, own, own, name=name))
    assert run(scheduler) == [("a", 0, 7)]
    assert run(scheduler) == [("a", 7, 2), ("b", 7, 2)]
    assert run(scheduler) == [("a", 9, 1), ("b", 9, 1)]


def test_one_that_comes_later_cuts_the_prompt_that_runs(scheduler: Scheduler, tokenizer: Tokenizer) -> None:
    scheduler.max_prefill_tokens = 3
    scheduler.add(prompt(tokenizer, 8, 8, name="a"))
    assert run(scheduler) == [("a", 0, 3)]
    scheduler.add(prompt(tokenizer, 9, 9, name="b"))
    assert run(scheduler) == [("a", 3, 3)]
    assert run(scheduler) == [("a", 6, 1)]
    assert run(scheduler) == [("a", 7, 2), ("b", 7, 1)]


def test_the_second_user_of_a_prefix_leaves_the_snapshot_for_the_third(
    scheduler: Scheduler, tokenizer: Tokenizer
) -> None:
    scheduler.max_prefill_tokens, scheduler.snapshot_tokens, scheduler.min_shared_tokens = 99, 4, 3
    for name, own, expected in (
        ("a", 8, [(0, 4), (4, 4), (8, 1)]), ("b", 9, [(4, 3), (7, 2)]), ("c", 10, [(7, 2)]),
    ):  # fmt: skip
        item = prompt(tokenizer, own, own, name=name)
        scheduler.add(item)
        assert [run(scheduler)[0][1:] for _ in expected] == expected
        scheduler.finish(item)


def test_a_prefix_shorter_than_the_grid_is_found_by_its_second_user(
    scheduler: Scheduler, tokenizer: Tokenizer
) -> None:
    scheduler.max_prefill_tokens = 99
    for name, own, expected in (("a", 8, [(0, 9)]), ("b", 9, [(0, 7), (7, 2)]), ("c", 10, [(7, 2)])):
        item = prompt(tokenizer, own, own, name=name)
        scheduler.add(item)
        assert [run(scheduler)[0][1:] for _ in expected] == expected
        scheduler.finish(item)


def test_a_prompt_that_shares_too_little_does_not_wait(scheduler: Scheduler, tokenizer: Tokenizer) -> None:
    scheduler.max_prefill_tokens = 16
    scheduler.add(sequence(tokenizer, [1, 2, 3, 9, 9], name="a"))
    scheduler.add(sequence(tokenizer, [1, 2, 3, 8, 8], name="b"))
    assert run(scheduler) == [("a", 0, 5), ("b", 0, 5)]


def test_tokens_that_agree_by_chance_behind_a_prefix_are_no_prefix_of_their_own(
    scheduler: Scheduler, tokenizer: Tokenizer
) -> None:
    for name, own in (("a", [8, 8, 8]), ("b", [8, 9, 9]), ("c", [9, 9, 9])):
        scheduler.add(prompt(tokenizer, *own, name=name))
    assert run(scheduler) == [("a", 0, 7)]
    assert run(scheduler) == [("a", 7, 3), ("b", 7, 3), ("c", 7, 2)]


def test_the_same_prompt_again_computes_what_is_behind_the_last_snapshot(
    scheduler: Scheduler, tokenizer: Tokenizer
) -> None:
    scheduler.max_prefill_tokens, scheduler.snapshot_tokens = 99, 5
    for name, expected in (("a", [(0, 5), (5, 4)]), ("b", [(5, 4)]), ("c", [(5, 4)])):
        item = prompt(tokenizer, 8, 8, name=name)
        scheduler.add(item)
        assert [run(scheduler)[0][1:] for _ in expected] == expected
        scheduler.finish(item)


def test_an_aborted_prompt_lets_go_of_those_that_waited_for_it(scheduler: Scheduler, tokenizer: Tokenizer) -> None:
    scheduler.max_prefill_tokens = 3
    first, second = prompt(tokenizer, 8, name="a"), prompt(tokenizer, 9, name="b")
    for item in (first, second):
        scheduler.add(item)
    assert run(scheduler) == [("a", 0, 3)]
    scheduler.finish(first)
    assert run(scheduler) == [("b", 0, 3)]
    scheduler.finish(second)
    assert scheduler.plan() is None
    assert scheduler.cache.usage == 0


def test_steps_hold_prompts_first_then_a_row_of_everything(scheduler: Scheduler, tokenizer: Tokenizer) -> None:
    scheduler.add(sequence(tokenizer, [1, 1], name="a"))
    assert run(scheduler) == [("a", 0, 2)]
    scheduler.add(sequence(tokenizer, [2] * 12, name="b"))
    assert run(scheduler) == [("b", 0, 8)]
    assert run(scheduler) == [("b", 8, 4)]
    assert run(scheduler) == [("a", 2, 1), ("b", 12, 1)]
