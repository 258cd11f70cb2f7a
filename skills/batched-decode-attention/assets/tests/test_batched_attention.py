"""Native attention against PyTorch's over the same keys and values, rounded to bf16 as the cache holds them."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from runtime.attention import Attention, rotary_table
from runtime.interfaces import Batch, ModelConfig, Segment
from runtime.kv_cache import KVCache
from runtime.parameters import Parameters
from torch import Tensor
from torch.nn import functional

PARAMETERS = replace(Parameters(), max_num_seqs=3, max_context_tokens=150)


class Rig:
    """Attention with a cache, and the unrotated inputs of every slot for the reference."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config
        self.attention = Attention(config, parameters=PARAMETERS)
        self.kv_cache = KVCache(config, parameters=PARAMETERS)
        generator = torch.Generator().manual_seed(3)
        widths = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
        self.inputs = [
            [torch.randn(150, width, config.head_dim, generator=generator) for width in widths] for _ in range(3)
        ]

    def run(self, parts: list[tuple[int, int, int]], *, layer: int = 0) -> list[Tensor]:
        """Attend the parts (slot, first position, number of rows) in one call; returns the output of each."""
        segments, positions, start_row = [], [], 0
        for slot, start, num_rows in parts:
            segments.append(Segment(slot=slot, start_row=start_row, num_rows=num_rows, start_position=start))
            positions += range(start, start + num_rows)
            start_row += num_rows
        batch = Batch(
            token_ids=torch.zeros(start_row, dtype=torch.int64),
            positions=torch.tensor(positions),
            segments=tuple(segments),
            logits_rows=(),
        )
        rows = [
            torch.cat([self.inputs[slot][kind][start : start + num_rows] for slot, start, num_rows in parts])
            for kind in range(3)
        ]
        output = self.attention(*rows, layer=layer, batch=batch, kv_cache=self.kv_cache)
        return list(output.split([num_rows for _, _, num_rows in parts]))

    def expected(self, slot: int, start: int, num_rows: int) -> Tensor:
        stop = start + num_rows
        query, key, value = (x[:stop] for x in self.inputs[slot])
        cos, sin = (x[:stop].unsqueeze(1) for x in rotary_table(self.config, num_positions=150))
        query, key = rotated(query, cos, sin), rotated(key, cos, sin)
        group = self.config.num_heads // self.config.num_kv_heads
        key, value = (x.bfloat16().float().repeat_interleave(group, dim=1).transpose(0, 1) for x in (key, value))
        attended = functional.scaled_dot_product_attention(query.transpose(0, 1), key, value, is_causal=True)
        return attended.transpose(0, 1)[start:].flatten(1)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    low, high = x.chunk(2, dim=-1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)


@pytest.fixture
def rig(config: ModelConfig) -> Rig:
    return Rig(config)


@pytest.mark.parametrize("num_rows", [1, 2, 15, 16, 17, 31, 32, 33, 64, 100, 150])
def test_a_whole_prompt(rig: Rig, num_rows: int) -> None:
    (output,) = rig.run([(1, 0, num_rows)])
    assert torch.allclose(output, rig.expected(1, 0, num_rows), atol=2e-5)


def test_decode_rows_of_all_sequences_beside_a_chunk(rig: Rig) -> None:
    rig.run([(0, 0, 95), (1, 0, 31)])
    parts = [(0, 95, 1), (2, 0, 20), (1, 31, 1)]
    for output, part in zip(rig.run(parts), parts, strict=True):
        assert torch.allclose(output, rig.expected(*part), atol=2e-5)


def test_cutting_a_prompt_changes_no_bit(rig: Rig) -> None:
    rig.inputs[2] = rig.inputs[0]
    (whole,) = rig.run([(0, 0, 150)])
    for size in (1, 7, 50):
        cut = [rig.run([(2, start, min(size, 150 - start))])[0] for start in range(0, 150, size)]
        assert torch.equal(torch.cat(cut), whole)


def test_layers_do_not_share_keys(rig: Rig) -> None:
    rig.run([(0, 0, 40)], layer=0)
    rig.run([(0, 0, 40)], layer=1)
    rig.inputs[0], kept = rig.inputs[1], rig.inputs[0]
    rig.run([(0, 0, 40)], layer=1)
    rig.inputs[0] = kept
    assert torch.allclose(rig.run([(0, 40, 1)], layer=0)[0], rig.expected(0, 40, 1), atol=2e-5)


def test_inputs_stay_as_they_are(rig: Rig) -> None:
    before = [x.clone() for x in rig.inputs[0]]
    rig.run([(0, 0, 30)])
    assert all(torch.equal(one, other) for one, other in zip(before, rig.inputs[0], strict=True))
