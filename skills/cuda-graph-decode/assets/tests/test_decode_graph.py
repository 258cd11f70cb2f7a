"""Steps of fixed shape: the same tokens as eager ones, whatever pads them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from runtime import weights
from runtime.device_model import DeviceModel
from runtime.interfaces import Batch, ModelConfig, Segment
from runtime.kv_cache import KVCache
from runtime.model import Model, size_bucket
from runtime.parameters import Parameters

SMALL = replace(Parameters(), max_num_seqs=4, max_context_tokens=256)
PROMPTS = ([9, 27, 5, 41, 33, 8, 19], [60, 2, 77], [14, 3, 11, 90])


def batch_of(parts: list[tuple[int, int, list[int]]]) -> Batch:
    """Of (slot, first position, token ids) each; logits after the last row of every part."""
    segments, ids, positions = [], [], []
    for slot, start, token_ids in parts:
        segments.append(Segment(slot=slot, start_row=len(ids), num_rows=len(token_ids), start_position=start))
        ids += token_ids
        positions += range(start, start + len(token_ids))
    last = tuple(segment.stop_row - 1 for segment in segments)
    return Batch(
        token_ids=torch.tensor(ids), positions=torch.tensor(positions), segments=tuple(segments), logits_rows=last
    )


@pytest.fixture(scope="module")
def model(model_dir: Path, config: ModelConfig) -> Model:
    return Model(config, weights.load_weights(model_dir), parameters=SMALL)


@pytest.mark.parametrize("num_sequences", [1, 2, 3])
def test_a_padded_step_gives_what_an_eager_one_gives(model: Model, config: ModelConfig, num_sequences: int) -> None:
    caches = [KVCache(config, parameters=SMALL) for _ in range(2)]
    slots = [[cache.allocate(64) for _ in range(num_sequences)] for cache in caches]
    assert slots[0] == slots[1]
    prompts = [(slot or 0, 0, prompt) for slot, prompt in zip(slots[0], PROMPTS, strict=False)]
    for cache in caches:
        model.forward(batch_of(prompts), cache)
    # a graph belongs to its cache: each cache has a model's own here
    model._graphs.clear()
    for number in range(4):
        step = batch_of([(slot, len(prompt) + number, [100 + number]) for slot, _, prompt in prompts])
        fixed, eager = model.forward(step, caches[0]), DeviceModel.forward(model, step, caches[1])
        assert fixed.shape == eager.shape == (num_sequences, config.vocab_size)
        assert (fixed - eager).abs().max() < 0.1 * eager.std()
    assert [key[0] for key in model._graphs] == [size_bucket(num_sequences)]


def test_sizes_are_powers_of_two() -> None:
    assert [size_bucket(number) for number in (1, 2, 3, 4, 5, 16, 17)] == [1, 2, 4, 4, 8, 16, 32]
