"""Bytes and bounds by hand: every literal is worked out in the comment above it."""

from __future__ import annotations

import pytest

from vibeserve.hardware import (
    Sharding,
    all_reduce_floor_s,
    attention_flops,
    decode_step_floor_s,
    kv_bytes_per_token,
    state_bytes_per_sequence,
    weight_bytes,
)
from vibeserve.hardware.roofline import block_parameters, compute_floor_s, forward_flops
from vibeserve.spec import LinearState, Model

LLAMA_8B = Model(
    id="llama", architecture="llama", num_parameters=8_030_261_248, num_layers=32, hidden_size=4096,
    intermediate_size=14336, num_heads=32, num_kv_heads=8, head_dim=128, vocab_size=128256,
)  # fmt: skip

OLMO = Model(
    id="olmo", architecture="olmo_hybrid", num_parameters=7_430_870_688, num_layers=32, num_attention_layers=8,
    hidden_size=3840, intermediate_size=11008, num_heads=30, num_kv_heads=30, head_dim=128, vocab_size=100352,
    linear_state=LinearState(
        num_layers=24, num_key_heads=30, num_value_heads=30, key_head_dim=96, value_head_dim=192, conv_kernel=4
    ),
)  # fmt: skip


def test_weights_in_the_declared_dtype_and_in_the_stored_bits() -> None:
    # 8,030,261,248 parameters, two bytes each
    assert weight_bytes(LLAMA_8B) == 16_060_522_496
    # over two tensor and two pipeline ranks: a quarter
    assert weight_bytes(LLAMA_8B, sharding=Sharding(tensor=2, pipeline=2)) == 4_015_130_624
    # 8.5 stored bits a weight: 8,030,261,248 x 8.5 / 8
    quantised = Model(id="q", architecture="llama", num_parameters=8_030_261_248, weight_bits=8.5)
    assert weight_bytes(quantised) == 8_532_152_576


def test_a_token_of_kv_cache() -> None:
    # key and value, 32 layers, 8 KV heads of 128, two bytes: 2 x 32 x 8 x 128 x 2
    assert kv_bytes_per_token(LLAMA_8B) == 131_072
    # four tensor ranks hold two heads each; two pipeline ranks 16 layers each
    assert kv_bytes_per_token(LLAMA_8B, sharding=Sharding(tensor=4, pipeline=2)) == 131_072 / 8


def test_kv_heads_are_replicated_where_there_are_more_ranks_than_heads() -> None:
    # 16 ranks and 8 KV heads: each rank keeps a whole head, 2 x 32 x 1 x 128 x 2
    assert kv_bytes_per_token(LLAMA_8B, sharding=Sharding(tensor=16)) == 16_384


def test_only_attention_layers_have_a_cache() -> None:
    # 8 of the 32 layers, 30 KV heads of 128: 2 x 8 x 30 x 128 x 2
    assert kv_bytes_per_token(OLMO) == 122_880
    undeclared = Model(
        id="m", architecture="m", num_layers=32, num_kv_heads=30, head_dim=128, linear_state=LinearState(num_layers=24)
    )
    assert kv_bytes_per_token(undeclared) == 122_880


def test_state_of_gated_deltanet() -> None:
    # matrix: 30 value heads x 96 x 192 in f32 = 2,211,840 bytes. Window: 3 inputs of 2 x 30 x 96 + 30 x 192 = 11,520
    # channels in bf16 = 69,120 bytes. 24 layers: 24 x 2,280,960
    assert state_bytes_per_sequence(OLMO) == 54_743_040
    # over two tensor ranks each keeps 15 heads and half of the channels
    assert state_bytes_per_sequence(OLMO, sharding=Sharding(tensor=2)) == 27_371_520
    # over four pipeline ranks each keeps six layers
    assert state_bytes_per_sequence(OLMO, sharding=Sharding(pipeline=4)) == 13_685_760


def test_state_of_mamba2() -> None:
    # 24 heads of 64, state size 128, one group. Matrix: 24 x 128 x 64 x 4 = 786,432. Window: 3 inputs of x, B and C,
    # 24 x 64 + 2 x 128 = 1,792 channels, two bytes = 10,752. 24 layers: 24 x 797,184
    mamba = LinearState(
        num_layers=24, num_key_heads=1, num_value_heads=24, key_head_dim=128, value_head_dim=64, conv_kernel=4
    )
    assert (
        state_bytes_per_sequence(Model(id="m", architecture="mamba2", num_layers=24, linear_state=mamba)) == 19_132_416
    )


def test_declared_convolution_channels_and_state_dtype_count() -> None:
    state = LinearState(
        num_layers=1, num_key_heads=1, num_value_heads=1, key_head_dim=8, value_head_dim=8, conv_kernel=2,
        conv_channels=10, dtype="bfloat16",
    )  # fmt: skip
    # 8 x 8 x 2 and one input of 10 channels x 2
    assert state_bytes_per_sequence(Model(id="m", architecture="m", num_layers=1, linear_state=state)) == 148


def test_a_model_without_linear_layers_has_no_state() -> None:
    assert state_bytes_per_sequence(LLAMA_8B) == 0


def test_a_decode_step_reads_weights_and_caches_and_moves_states_twice() -> None:
    # 14 GB + 1 GB at 15 GB/s
    assert decode_step_floor_s(weight_bytes=14e9, kv_bytes=1e9, bandwidth_gb_s=15) == pytest.approx(1.0)
    # 0.5 GB of states, read and written
    step_s = decode_step_floor_s(weight_bytes=14e9, kv_bytes=0.0, state_bytes=0.5e9, bandwidth_gb_s=15)
    assert step_s == pytest.approx(1.0)


def test_operations_of_matrices_and_of_attention() -> None:
    # two per parameter and token, and two per parameter of the output matrix and position with logits
    flops = forward_flops(num_tokens=500, num_parameters=1_000_000_000, num_outputs=1, num_head_parameters=10)
    assert flops == 1e12 + 20
    assert compute_floor_s(flops - 20, tflops=1) == pytest.approx(1.0)
    # 512 tokens: 512 x 513 / 2 = 131,328 pairs, 4 x 32 layers x 32 heads x 128 = 524,288 operations each
    assert attention_flops(LLAMA_8B, num_new=512) == 68_853_694_464
    # 128 behind 32,768: 128 x 32,768 + 128 x 129 / 2 = 4,202,560 pairs, 4 x 8 x 30 x 128 = 122,880 each
    assert attention_flops(OLMO, num_new=128, num_cached=32768) == 516_410_572_800


def test_a_ring_sends_all_but_one_share_twice() -> None:
    # two ranks: 2 x 1/2 x 1 GB at 1 GB/s; four: 2 x 3/4
    assert all_reduce_floor_s(1e9, num_ranks=2, interconnect_gb_s=1) == pytest.approx(1.0)
    assert all_reduce_floor_s(1e9, num_ranks=4, interconnect_gb_s=1) == pytest.approx(1.5)


def test_parameters_of_blocks() -> None:
    # two layers: q and o 2 x 64 x 64, k and v 2 x 64 x 32, gate, up and down 3 x 64 x 128
    sizes = {"num_layers": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 4, "num_kv_heads": 2}
    assert block_parameters(**sizes, head_dim=16) == 2 * (8_192 + 4_096 + 24_576)
    assert block_parameters(**sizes, head_dim=16, num_mlp_matrices=2) == 2 * (8_192 + 4_096 + 16_384)
