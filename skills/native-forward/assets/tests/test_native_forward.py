"""The native step against a plain decoder in PyTorch, and what it must not depend on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import runtime
import torch
from runtime import spans, weights
from runtime.interfaces import Batch, ModelConfig, Segment
from runtime.kv_cache import KVCache
from runtime.model import Model
from runtime.parameters import Parameters
from torch import Tensor
from torch.nn import functional

EXACT = replace(Parameters(), max_num_seqs=4, max_context_tokens=256, fixed_point_min_rows=0)
FIXED = replace(EXACT, fixed_point_min_rows=32)
WEIGHT_BITS = json.loads((Path(runtime.__file__).parent / "assembly.json").read_text(encoding="utf-8"))["weight_bits"]
TOLERANCE = 2e-3 if WEIGHT_BITS >= 16 else 3e-2
"""of the logits, relative; 8-bit weights by themselves move them by about one percent"""
Part = tuple[int, int, list[int]]
"""slot, first position, token ids"""


class Rig:
    def __init__(self, model_dir: Path, config: ModelConfig, parameters: Parameters) -> None:
        self.model = Model(config, weights.load_weights(model_dir), parameters=parameters)
        self.kv_cache = KVCache(config, parameters=parameters)

    def run(self, parts: list[Part], *, all_rows: bool = False) -> Tensor:
        """Logits of the last row of every part, or of all rows."""
        segments, ids, positions, last = [], [], [], []
        for slot, start, token_ids in parts:
            segments.append(Segment(slot=slot, start_row=len(ids), num_rows=len(token_ids), start_position=start))
            ids += token_ids
            positions += range(start, start + len(token_ids))
            last.append(len(ids) - 1)
        batch = Batch(
            token_ids=torch.tensor(ids),
            positions=torch.tensor(positions),
            segments=tuple(segments),
            logits_rows=tuple(range(len(ids)) if all_rows else last),
        )
        return self.model.forward(batch, self.kv_cache)


@pytest.fixture(scope="module")
def exact(model_dir: Path, config: ModelConfig) -> Rig:
    return Rig(model_dir, config, EXACT)


@pytest.fixture(scope="module")
def fixed(model_dir: Path, config: ModelConfig) -> Rig:
    return Rig(model_dir, config, FIXED)


@pytest.fixture(scope="module")
def ids(config: ModelConfig) -> list[int]:
    return torch.randint(config.vocab_size, (100,), generator=torch.Generator().manual_seed(1)).tolist()


def reference(ids: list[int], config: ModelConfig, stored: dict[str, Tensor]) -> Tensor:
    """Logits [len(ids), vocab_size] in f32 with keys and values rounded to bf16."""
    x = stored["model.embed_tokens.weight"].float()[torch.tensor(ids)]
    exponents = torch.arange(0, config.head_dim, 2) / config.head_dim
    angles = torch.outer(torch.arange(len(ids)).float(), config.rope_theta**-exponents).unsqueeze(1)

    def norm(x: Tensor, name: str) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + config.rms_norm_eps) * stored[name].float()

    def rotate(x: Tensor) -> Tensor:
        low, high = x.chunk(2, dim=-1)
        return torch.cat((low * angles.cos() - high * angles.sin(), high * angles.cos() + low * angles.sin()), dim=-1)

    for index in range(config.num_layers):
        layer = f"model.layers.{index}."

        def project(x: Tensor, name: str, layer: str = layer) -> Tensor:
            return x @ stored[f"{layer}{name}.weight"].float().T

        normed = norm(x, f"{layer}input_layernorm.weight")
        query, key, value = (
            project(normed, f"self_attn.{kind}_proj").view(len(ids), -1, config.head_dim) for kind in "qkv"
        )
        group = config.num_heads // config.num_kv_heads
        key, value = (y.bfloat16().float().repeat_interleave(group, 1).transpose(0, 1) for y in (rotate(key), value))
        attended = functional.scaled_dot_product_attention(rotate(query).transpose(0, 1), key, value, is_causal=True)
        x = x + project(attended.transpose(0, 1).flatten(1), "self_attn.o_proj")
        normed = norm(x, f"{layer}post_attention_layernorm.weight")
        gated = functional.silu(project(normed, "mlp.gate_proj")) * project(normed, "mlp.up_proj")
        x = x + project(gated, "mlp.down_proj")
    head = "model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"
    return norm(x, "model.norm.weight") @ stored[head].float().T


def relative_error(logits: Tensor, expected: Tensor) -> float:
    return float((logits - expected).norm() / expected.norm())


def test_logits_of_every_row(exact: Rig, fixed: Rig, ids: list[int], model_dir: Path, config: ModelConfig) -> None:
    expected = reference(ids, config, weights.load_weights(model_dir))
    assert relative_error(exact.run([(0, 0, ids)], all_rows=True), expected) < TOLERANCE
    assert relative_error(fixed.run([(0, 0, ids)], all_rows=True), expected) < TOLERANCE


def test_neither_the_batch_nor_the_cut_changes_a_bit(exact: Rig, ids: list[int]) -> None:
    whole = exact.run([(0, 0, ids)], all_rows=True)
    exact.run([(1, 0, ids[:60]), (2, 0, ids[:33])])
    together = exact.run([(1, 60, ids[60:61]), (2, 33, ids[33:40]), (3, 0, ids[:20])])
    assert torch.equal(together, whole[[60, 39, 19]])
    one_by_one = torch.cat([exact.run([(0, index, [token])]) for index, token in enumerate(ids)])
    assert torch.equal(one_by_one, whole)


def test_fixed_point_depends_on_the_own_segment_only(fixed: Rig, ids: list[int]) -> None:
    alone = torch.cat([fixed.run([(0, 0, ids[:50])]), fixed.run([(1, 0, ids[:9])])])
    assert torch.equal(fixed.run([(2, 0, ids[:50]), (3, 0, ids[:9])]), alone)


def test_a_step_without_wanted_rows_fills_the_cache(exact: Rig, ids: list[int]) -> None:
    (expected,) = exact.run([(0, 0, ids[:41])])
    batch = Batch(
        token_ids=torch.tensor(ids[:40]),
        positions=torch.arange(40),
        segments=(Segment(slot=1, start_row=0, num_rows=40, start_position=0),),
        logits_rows=(),
    )
    assert exact.model.forward(batch, exact.kv_cache).shape[0] == 0
    assert torch.equal(exact.run([(1, 40, ids[40:41])])[0], expected)


def test_spans_are_reported(exact: Rig, ids: list[int]) -> None:
    spans.forward.linear.take()
    spans.forward.attention.take()
    exact.run([(0, 0, ids)])
    assert spans.forward.linear.take() > 0
    assert spans.forward.attention.take() > 0
