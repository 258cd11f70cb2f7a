"""The queue of sequences and the rows of a step, whatever the policy."""

from __future__ import annotations

import asyncio

import pytest
from runtime.batching import SequenceQueue
from runtime.interfaces import ModelConfig, SamplingParams, Sequence
from runtime.kv_cache import KVCache
from runtime.parameters import Parameters
from runtime.steps import make_step
from runtime.tokenizer import Tokenizer


def sequence(tokenizer: Tokenizer, prompt: list[int], *, name: str = "a") -> Sequence:
    params = SamplingParams(max_tokens=4, temperature=0.0)
    return Sequence(
        request_id=name,
        index=0,
        prompt_token_ids=prompt,
        params=params,
        detokenizer=tokenizer.detokenizer(()),
        sink=asyncio.Queue(),
    )


@pytest.fixture
def queue(config: ModelConfig) -> SequenceQueue:
    return SequenceQueue(KVCache(config, parameters=Parameters()))


def test_slots_limit_who_runs_and_the_first_in_line_is_next(queue: SequenceQueue, tokenizer: Tokenizer) -> None:
    room = Parameters().max_num_seqs
    sequences = [sequence(tokenizer, [1, 2], name=str(index)) for index in range(room + 2)]
    for item in sequences:
        queue.add(item)
    queue.admit()
    assert queue.running == sequences[:room]
    assert queue.num_waiting == 2
    assert len({item.slot for item in queue.running}) == room
    queue.finish(sequences[0])
    queue.admit()
    assert queue.running[-1] is sequences[room]


def test_finishing_frees_the_slot_once_and_ignores_strangers(queue: SequenceQueue, tokenizer: Tokenizer) -> None:
    stranger, running, waiting = (sequence(tokenizer, [1], name=name) for name in "abc")
    queue.add(running)
    queue.admit()
    queue.add(waiting)
    usage = queue.kv_cache.usage
    for item in (stranger, waiting, running, running):
        queue.finish(item)
    assert usage > 0
    assert queue.kv_cache.usage == 0
    assert (queue.num_running, queue.num_waiting) == (0, 0)
    assert running.slot is None


def test_rows_of_a_step_lie_segment_after_segment(queue: SequenceQueue, tokenizer: Tokenizer) -> None:
    prompt, decoding = sequence(tokenizer, [5, 6, 7, 8]), sequence(tokenizer, [1, 2, 3])
    for item in (prompt, decoding):
        queue.add(item)
    queue.admit()
    if queue.num_running < 2:
        pytest.skip("this assembly runs one sequence at a time")
    decoding.num_computed_tokens = 3
    decoding.output_token_ids.append(9)
    step = make_step([(prompt, 2), (decoding, 1)])
    assert step.batch.token_ids.tolist() == [5, 6, 9]
    assert step.batch.positions.tolist() == [0, 1, 3]
    segments = [(item.start_row, item.num_rows, item.start_position) for item in step.batch.segments]
    assert segments == [(0, 2, 0), (2, 1, 3)]
    # a chunk that is not the prompt's last has no next token yet
    assert step.batch.logits_rows == (2,)
    assert step.sampled == (decoding,)
