"""The wrapped decoder: the same text as one forward over everything, and no way back for a sequence."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from runtime import weights
from runtime.interfaces import Batch, Segment
from runtime.kv_cache import KVCache
from runtime.model import Model
from runtime.parameters import Parameters
from torch import Tensor

PROMPT = [9, 27, 5, 41, 33, 8, 19, 60, 2, 77, 14, 3]
NUM_STEPS = 6


@pytest.fixture(scope="module")
def model(model_dir: Path) -> Model:
    config = weights.load_config(model_dir)
    return Model(config, weights.load_weights(model_dir), parameters=Parameters())


@pytest.fixture
def kv_cache(model: Model) -> KVCache:
    return KVCache(model.config, parameters=Parameters())


def step(token_ids: list[int], *, start: int, rows: tuple[int, ...]) -> Batch:
    return Batch(
        token_ids=torch.tensor(token_ids),
        positions=torch.arange(start, start + len(token_ids)),
        segments=(Segment(slot=0, start_row=0, num_rows=len(token_ids), start_position=start),),
        logits_rows=rows,
    )


def test_greedy_steps_agree_with_one_forward_without_a_cache(model: Model, kv_cache: KVCache) -> None:
    token_ids = list(PROMPT)
    stepped: list[Tensor] = []
    for number in range(NUM_STEPS):
        start = 0 if number == 0 else len(token_ids) - 1
        batch = step(token_ids[start:], start=start, rows=(len(token_ids) - start - 1,))
        stepped.append(model.forward(batch, kv_cache)[0])
        token_ids.append(int(stepped[-1].argmax()))
    with torch.inference_mode():
        whole = model.network(input_ids=torch.tensor([token_ids[:-1]]), use_cache=False).logits[0, -NUM_STEPS:].float()
    for ours, theirs in zip(stepped, whole, strict=True):
        assert (ours - theirs).abs().max() < 0.03 * theirs.std()


def test_a_chunk_that_nothing_is_asked_of_has_no_logits(model: Model, kv_cache: KVCache) -> None:
    assert model.forward(step(PROMPT, start=0, rows=()), kv_cache).shape == (0, model.vocab_size)


def test_a_sequence_cannot_go_back(model: Model, kv_cache: KVCache) -> None:
    model.forward(step(PROMPT, start=0, rows=(0,)), kv_cache)
    with pytest.raises(ValueError, match="has seen 12 tokens; it cannot go on at 6"):
        model.forward(step(PROMPT[6:], start=6, rows=(0,)), kv_cache)
