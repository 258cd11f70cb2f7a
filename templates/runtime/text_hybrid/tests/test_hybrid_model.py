"""States of the linear layers: no way back, nothing left over, and a rule that is the definition."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from runtime import weights
from runtime.delta_rule import convolve, step
from runtime.hybrid import HybridConfig
from runtime.interfaces import Batch, Segment
from runtime.kv_cache import KVCache
from runtime.model import Model
from runtime.parameters import Parameters
from runtime.rotary import Rotary
from torch import Tensor

PROMPT = [9, 27, 5, 41, 33, 8, 19, 60, 2, 77, 14, 3]


@pytest.fixture(scope="module")
def hybrid_config(model_dir: Path) -> HybridConfig:
    return weights.load_config(model_dir)


@pytest.fixture(scope="module")
def model(model_dir: Path, hybrid_config: HybridConfig) -> Model:
    return Model(hybrid_config, weights.load_weights(model_dir), parameters=Parameters())


@pytest.fixture
def kv_cache(hybrid_config: HybridConfig) -> KVCache:
    return KVCache(hybrid_config, parameters=Parameters())


def batch_of(token_ids: list[int], *, slot: int, start: int) -> Batch:
    num_rows = len(token_ids)
    return Batch(
        token_ids=torch.tensor(token_ids),
        positions=torch.arange(start, start + num_rows),
        segments=(Segment(slot=slot, start_row=0, num_rows=num_rows, start_position=start),),
        logits_rows=(num_rows - 1,),
    )


def allocate(kv_cache: KVCache) -> int:
    slot = kv_cache.allocate(32)
    assert slot is not None
    return slot


def states_of(kv_cache: KVCache, slot: int) -> list[Tensor]:
    return [tensors[slot].clone() for each in (kv_cache.states, kv_cache.windows) for tensors in each.values()]


def test_a_sequence_cannot_go_back_or_skip(model: Model, kv_cache: KVCache) -> None:
    slot = allocate(kv_cache)
    model.forward(batch_of(PROMPT[:6], slot=slot, start=0), kv_cache)
    for start in (5, 7):
        with pytest.raises(ValueError, match=f"has seen 6 tokens; it cannot go on at {start}"):
            model.forward(batch_of(PROMPT[start : start + 1], slot=slot, start=start), kv_cache)
    model.forward(batch_of(PROMPT[6:], slot=slot, start=6), kv_cache)


def test_a_new_sequence_starts_from_empty_states(model: Model, kv_cache: KVCache) -> None:
    slot = allocate(kv_cache)
    model.forward(batch_of(PROMPT, slot=slot, start=0), kv_cache)
    first = states_of(kv_cache, slot)
    kv_cache.free(slot)
    again = allocate(kv_cache)
    assert again == slot
    model.forward(batch_of(PROMPT * 2, slot=slot, start=0), kv_cache)
    kv_cache.free(slot)
    slot = allocate(kv_cache)
    model.forward(batch_of(PROMPT, slot=slot, start=0), kv_cache)
    assert all(torch.equal(one, other) for one, other in zip(first, states_of(kv_cache, slot), strict=True))


def test_states_depend_on_tokens_that_are_long_gone(model: Model, kv_cache: KVCache) -> None:
    slot = allocate(kv_cache)
    model.forward(batch_of(PROMPT, slot=slot, start=0), kv_cache)
    first = states_of(kv_cache, slot)
    model.forward(batch_of([PROMPT[1], *PROMPT[1:]], slot=slot, start=0), kv_cache)
    changed = [not torch.equal(one, other) for one, other in zip(first, states_of(kv_cache, slot), strict=True)]
    assert any(changed)


def test_one_step_is_the_definition() -> None:
    generator = torch.Generator().manual_seed(3)
    state = torch.randn(2, 4, 5, generator=generator)
    query, key = torch.randn(2, 4, generator=generator), torch.randn(2, 4, generator=generator)
    value, beta = torch.randn(2, 5, generator=generator), torch.rand(2, generator=generator) * 2
    decay = -torch.rand(2, generator=generator)
    wanted = state.clone()
    for head in range(2):
        faded = wanted[head] * decay[head].exp()
        transition = torch.eye(4) - beta[head] * torch.outer(key[head], key[head])
        wanted[head] = transition @ faded + beta[head] * torch.outer(key[head], value[head])
    output = step(state, query, key, value, decay=decay, beta=beta)
    torch.testing.assert_close(state, wanted)
    torch.testing.assert_close(output, torch.einsum("hk,hkv->hv", query, wanted))


def test_the_convolution_sees_its_window_and_nothing_later() -> None:
    generator = torch.Generator().manual_seed(4)
    inputs, kernel = torch.randn(8, 3, generator=generator), torch.randn(4, 3, generator=generator)
    wanted = torch.stack([(inputs[row : row + 4] * kernel).sum(0) for row in range(5)])
    torch.testing.assert_close(convolve(inputs, kernel), torch.nn.functional.silu(wanted))


def test_no_positions_leave_everything_as_it_is(hybrid_config: HybridConfig) -> None:
    from dataclasses import replace

    x = torch.randn(3, 2, hybrid_config.head_dim, generator=torch.Generator().manual_seed(5))
    positions = torch.tensor([0, 7, 9])
    still = Rotary(replace(hybrid_config, rotary_dim=0, rope_theta=0.0), num_positions=16)
    assert still(x, positions) is x
    half = hybrid_config.head_dim // 2
    partly = Rotary(replace(hybrid_config, rotary_dim=half, rope_theta=100.0), num_positions=16)(x, positions)
    assert torch.equal(partly[0], x[0])
    assert torch.equal(partly[..., half:], x[..., half:])
    assert not torch.allclose(partly[1, :, :half], x[1, :, :half])
