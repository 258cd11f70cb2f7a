"""Pages: taken for a sequence's own length, given back, and read in order wherever they lie."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from runtime.interfaces import ModelConfig
from runtime.kv_cache import PAGE_TOKENS, KVCache
from runtime.parameters import Parameters

SMALL = replace(Parameters(), max_num_seqs=4, max_context_tokens=64, num_kv_pages=6)


def taken(cache: KVCache, num_tokens: int) -> int:
    slot = cache.allocate(num_tokens)
    assert slot is not None
    return slot


def test_a_sequence_takes_pages_for_its_own_length(config: ModelConfig) -> None:
    cache = KVCache(config, parameters=SMALL)
    first = taken(cache, 2 * PAGE_TOKENS + 1)
    second = taken(cache, PAGE_TOKENS)
    assert cache.usage == pytest.approx(4 / 5)
    # a slot is free, two pages are not
    assert cache.allocate(PAGE_TOKENS + 1) is None
    cache.free(first)
    assert taken(cache, 4 * PAGE_TOKENS) != second
    with pytest.raises(ValueError, match="is already free"):
        cache.free(99)
    with pytest.raises(ValueError, match="65 tokens do not fit a slot of 64"):
        cache.allocate(65)


def test_a_cache_for_less_than_one_sequence_is_refused(config: ModelConfig) -> None:
    with pytest.raises(ValueError, match="num_kv_pages is 4; a context of 64 tokens takes 5"):
        KVCache(config, parameters=replace(SMALL, num_kv_pages=4))


def test_what_was_written_is_read_in_order(config: ModelConfig) -> None:
    cache = KVCache(config, parameters=SMALL)
    held = taken(cache, PAGE_TOKENS)
    kept = taken(cache, PAGE_TOKENS)
    cache.free(held)
    # its pages do not lie side by side: one before `kept`, the rest behind it
    slot = taken(cache, 3 * PAGE_TOKENS)
    num_rows = 2 * PAGE_TOKENS + 5
    shape = (num_rows, config.num_kv_heads, config.head_dim)
    key, value = torch.randn(shape).bfloat16(), torch.randn(shape).bfloat16()
    device = cache.table.device
    slots = torch.full((num_rows,), slot, device=device)
    cache.write(1, key.to(device), value.to(device), slots=slots, positions=torch.arange(num_rows, device=device))
    keys, values = cache.read(1, slots=torch.tensor([kept, slot], device=device), context=num_rows)
    assert torch.equal(keys[1].cpu(), key.transpose(0, 1))
    assert torch.equal(values[1].cpu(), value.transpose(0, 1))
    assert not keys[0].any()
