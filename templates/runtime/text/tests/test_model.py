"""The decoder: chunks and slots change nothing, context and position change everything."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from runtime import weights
from runtime.interfaces import Batch, ModelConfig, Segment
from runtime.kv_cache import KVCache
from runtime.model import Model
from runtime.parameters import Parameters
from torch import Tensor

ROUNDING = 0.1 if hasattr(Parameters(), "device") else 0.03
"""of the logits' deviation; what has a device computes in bf16, all else in f32 or finer"""
PROMPT = [9, 27, 5, 41, 33, 8, 19, 60, 2, 77, 14, 3]


@pytest.fixture(scope="module")
def model(model_dir: Path, config: ModelConfig) -> Model:
    return Model(config, weights.load_weights(model_dir), parameters=Parameters())


@pytest.fixture
def kv_cache(config: ModelConfig) -> KVCache:
    return KVCache(config, parameters=Parameters())


def run(model: Model, kv_cache: KVCache, token_ids: list[int], *, slot: int, start: int = 0) -> Tensor:
    """Logits [vocab_size] after `token_ids` at positions from `start`."""
    num_rows = len(token_ids)
    batch = Batch(
        token_ids=torch.tensor(token_ids),
        positions=torch.arange(start, start + num_rows),
        segments=(Segment(slot=slot, start_row=0, num_rows=num_rows, start_position=start),),
        logits_rows=(num_rows - 1,),
    )
    return model.forward(batch, kv_cache)[0].clone()


def allocate(kv_cache: KVCache, num_tokens: int = 32) -> int:
    slot = kv_cache.allocate(num_tokens)
    assert slot is not None
    return slot


def is_close(one: Tensor, other: Tensor) -> bool:
    """Equal up to the rounding of kernels that depend on the number of rows."""
    return bool((one - other).abs().max() < ROUNDING * other.std())


def test_a_prompt_in_chunks_gives_the_same_logits(model: Model, kv_cache: KVCache) -> None:
    slot = allocate(kv_cache)
    whole = run(model, kv_cache, PROMPT, slot=slot)
    kv_cache.free(slot)
    for size in (1, 5):
        slot = allocate(kv_cache)
        for start in range(0, len(PROMPT), size):
            logits = run(model, kv_cache, PROMPT[start : start + size], slot=slot, start=start)
        assert is_close(logits, whole)
        kv_cache.free(slot)


def test_every_token_and_its_position_count(model: Model, kv_cache: KVCache) -> None:
    slot = allocate(kv_cache)
    whole = run(model, kv_cache, PROMPT, slot=slot)
    other_first = run(model, kv_cache, [PROMPT[1], *PROMPT[1:]], slot=slot)
    swapped = run(model, kv_cache, [*PROMPT[:3], PROMPT[4], PROMPT[3], *PROMPT[5:]], slot=slot)
    assert not is_close(other_first, whole)
    assert not is_close(swapped, whole)


def test_what_a_slot_held_before_does_not_leak(model: Model, kv_cache: KVCache) -> None:
    slot = allocate(kv_cache)
    whole = run(model, kv_cache, PROMPT, slot=slot)
    run(model, kv_cache, list(reversed(PROMPT * 2)), slot=slot)
    assert is_close(run(model, kv_cache, PROMPT, slot=slot), whole)


def test_later_rows_do_not_reach_earlier_ones(model: Model, kv_cache: KVCache, config: ModelConfig) -> None:
    slot = allocate(kv_cache)
    short = run(model, kv_cache, PROMPT[:6], slot=slot)
    batch = Batch(
        token_ids=torch.tensor(PROMPT),
        positions=torch.arange(len(PROMPT)),
        segments=(Segment(slot=slot, start_row=0, num_rows=len(PROMPT), start_position=0),),
        logits_rows=(5, len(PROMPT) - 1),
    )
    logits = model.forward(batch, kv_cache)
    assert logits.shape == (2, config.vocab_size)
    assert is_close(logits[0], short)


def test_slots_run_out_and_come_back(kv_cache: KVCache) -> None:
    slots = []
    while (slot := kv_cache.allocate(8)) is not None:
        slots.append(slot)
    assert len(set(slots)) == len(slots) == Parameters().max_num_seqs
    assert kv_cache.usage == 1
    kv_cache.free(slots[0])
    assert kv_cache.allocate(8) == slots[0]


@pytest.mark.skipif(Parameters().max_num_seqs < 2, reason="this assembly runs one sequence at a time")
def test_sequences_in_one_batch_do_not_see_each_other(model: Model, kv_cache: KVCache) -> None:
    first, second = allocate(kv_cache), allocate(kv_cache)
    alone = run(model, kv_cache, PROMPT, slot=first), run(model, kv_cache, PROMPT[:5], slot=second)
    batch = Batch(
        token_ids=torch.tensor(PROMPT + PROMPT[:5]),
        positions=torch.tensor([*range(len(PROMPT)), *range(5)]),
        segments=(
            Segment(slot=first, start_row=0, num_rows=len(PROMPT), start_position=0),
            Segment(slot=second, start_row=len(PROMPT), num_rows=5, start_position=0),
        ),
        logits_rows=(len(PROMPT) - 1, len(PROMPT) + 4),
    )
    together = model.forward(batch, kv_cache)
    assert is_close(together[0], alone[0])
    assert is_close(together[1], alone[1])
