"""The native step against a plain decoder in PyTorch, and its independence of batches and cuts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from runtime import weights
from runtime.interfaces import Batch, ModelConfig, Segment
from runtime.kv_cache import KVCache
from runtime.linear import Linear
from runtime.model import Model
from runtime.parameters import Parameters
from torch import Tensor
from torch.nn import functional

PROMPT = [9, 27, 5, 41, 33, 8, 19, 60, 2, 77, 14, 3] * 4


@pytest.fixture(scope="module")
def checkpoint(model_dir: Path) -> dict[str, Tensor]:
    return weights.load_weights(model_dir)


@pytest.fixture(scope="module")
def model(checkpoint: dict[str, Tensor], config: ModelConfig) -> Model:
    return Model(config, checkpoint, parameters=Parameters())


def run(model: Model, kv_cache: KVCache, parts: list[tuple[int, int, list[int]]]) -> Tensor:
    """Logits of all rows; a part is (slot, first position, token ids)."""
    token_ids: list[int] = []
    segments = []
    for slot, start, ids in parts:
        segments.append(Segment(slot=slot, start_row=len(token_ids), num_rows=len(ids), start_position=start))
        token_ids += ids
    positions = torch.tensor([one.start_position + i for one in segments for i in range(one.num_rows)])
    batch = Batch(
        token_ids=torch.tensor(token_ids),
        positions=positions,
        segments=tuple(segments),
        logits_rows=tuple(range(len(token_ids))),
    )
    return model.forward(batch, kv_cache)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.float()


def plain_attention(x: Tensor, layer: dict[str, Tensor], config: ModelConfig) -> Tensor:
    size, half = config.head_dim, config.head_dim // 2
    angles = torch.outer(
        torch.arange(len(x)).float(), config.rope_theta ** -(torch.arange(0, size, 2).float() / size)
    )
    cos, sin = angles.cos().unsqueeze(1), angles.sin().unsqueeze(1)

    def heads(name: str, *, rotated: bool) -> Tensor:
        y = functional.linear(x, layer[f"self_attn.{name}_proj"].float()).view(len(x), -1, size)
        if rotated:
            low, high = y[..., :half], y[..., half:]
            y = torch.cat((low * cos - high * sin, high * cos + low * sin), dim=-1)
        return y.transpose(0, 1).unsqueeze(0)

    attended = functional.scaled_dot_product_attention(
        heads("q", rotated=True), heads("k", rotated=True), heads("v", rotated=False), is_causal=True, enable_gqa=True
    )
    return functional.linear(attended.squeeze(0).transpose(0, 1).flatten(1), layer["self_attn.o_proj"].float())


def plain_logits(checkpoint: dict[str, Tensor], config: ModelConfig, token_ids: list[int]) -> Tensor:
    x = checkpoint["model.embed_tokens.weight"][token_ids].float()
    for index in range(config.num_layers):
        prefix, suffix = f"model.layers.{index}.", ".weight"
        layer = {
            name.removeprefix(prefix).removesuffix(suffix): tensor
            for name, tensor in checkpoint.items()
            if name.startswith(prefix)
        }
        x = x + plain_attention(rms_norm(x, layer["input_layernorm"], config.rms_norm_eps), layer, config)
        normed = rms_norm(x, layer["post_attention_layernorm"], config.rms_norm_eps)
        gate, up = (functional.linear(normed, layer[f"mlp.{name}_proj"].float()) for name in ("gate", "up"))
        x = x + functional.linear(functional.silu(gate) * up, layer["mlp.down_proj"].float())
    x = rms_norm(x, checkpoint["model.norm.weight"], config.rms_norm_eps)
    head = checkpoint["model.embed_tokens.weight" if config.tie_word_embeddings else "lm_head.weight"]
    return functional.linear(x, head.float())


def test_all_rows_equal_a_plain_decoder(model: Model, checkpoint: dict[str, Tensor], config: ModelConfig) -> None:
    wanted = plain_logits(checkpoint, config, PROMPT)
    prompt = run(model, KVCache(config, parameters=Parameters()), [(0, 0, PROMPT)])
    assert (prompt - wanted).abs().max() < 0.03 * wanted.std()
    kv_cache = KVCache(config, parameters=Parameters())
    decoded = torch.cat([run(model, kv_cache, [(0, i, [token_id])]) for i, token_id in enumerate(PROMPT)])
    assert (decoded - wanted).abs().max() < 0.01 * wanted.std()


def test_batches_and_cuts_change_no_bit(model: Model, config: ModelConfig) -> None:
    kv_cache = KVCache(config, parameters=Parameters())
    whole = run(model, kv_cache, [(0, 0, PROMPT)])
    first = run(model, kv_cache, [(1, 0, PROMPT[:17])])
    rest = run(model, kv_cache, [(2, 0, PROMPT[:1]), (0, 0, PROMPT[:30]), (1, 17, PROMPT[17:])])
    alone = run(model, kv_cache, [(3, 0, PROMPT[:1])])
    assert torch.equal(torch.cat((first, rest[31:])), whole)
    assert torch.equal(rest[1:31], whole[:30])
    assert torch.equal(rest[:1], alone)


def test_decode_rows_do_not_depend_on_their_neighbours(model: Model, config: ModelConfig) -> None:
    kv_cache = KVCache(config, parameters=Parameters())
    for slot in range(8):
        run(model, kv_cache, [(slot, 0, PROMPT[: 10 + slot])])
    rows = [(slot, 10 + slot, [PROMPT[slot]]) for slot in range(8)]
    together = run(model, kv_cache, rows)
    assert torch.equal(torch.cat([run(model, kv_cache, [row]) for row in rows]), together)


@pytest.mark.parametrize("num_rows", [1, 2, 3, 4, 5, 6, 7, 8, 16, 33, 130])
@pytest.mark.parametrize(("num_out", "num_in"), [(80, 576), (50, 33)])
@pytest.mark.parametrize(("is_fixed", "tolerance"), [(False, 1e-5), (True, 2e-3)])
def test_products_equal_those_in_f64(
    num_rows: int, num_out: int, num_in: int, is_fixed: bool, tolerance: float
) -> None:
    generator = torch.Generator().manual_seed(num_rows)
    weight = torch.randn(num_out, num_in, generator=generator).bfloat16()
    x = torch.randn(num_rows, num_in, generator=generator)
    y = Linear(weight, parameters=Parameters())(x, is_fixed=is_fixed)
    wanted = x.double() @ weight.double().T
    assert (y - wanted).abs().max() < tolerance * num_in**0.5


def test_sums_at_the_bound_do_not_overflow() -> None:
    weight = torch.ones(16, 128).bfloat16()
    y = Linear(weight, parameters=Parameters())(torch.full((2, 128), 3.0), is_fixed=True)
    assert y.flatten().tolist() == pytest.approx([384.0] * 32, rel=1e-3)
