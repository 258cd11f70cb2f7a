"""Memory of one rank from the declared loads, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plan_samples import H100, L4, LLAMA_8B, LLAMA_70B, OLMO, ONE, SMOLLM2, chat, closed, shared, spec_of

from vibeserve.plan.demand import demand_of, num_in_flight
from vibeserve.plan.memory import GIB, PROCESS_GIB, encoder_state_bytes, estimate_memory
from vibeserve.plan.nouns import MemoryEstimate
from vibeserve.spec import Load, Model, Parallelism, Slo, Spec, SpeechEncoder, Workload


def memory_of(spec: Spec, *, parallelism: Parallelism = ONE, capacity_gib: float | None = 80.0) -> MemoryEstimate:
    return estimate_memory(spec, parallelism=parallelism, capacity_gib=capacity_gib)


def test_weights_and_cache_of_the_largest_load() -> None:
    memory = memory_of(spec_of(SMOLLM2, H100, chat(loads=closed(1, 16))))
    assert (memory.load, memory.num_sequences) == ("c16", 16)
    # 134,515,008 parameters, two bytes
    assert memory.weights_gib == 269_030_016 / GIB
    # 16 requests of 512 + 128 tokens, 23,040 bytes each: 235,929,600
    assert memory.kv_cache_gib == pytest.approx(235_929_600 / GIB)
    assert memory.state_gib == 0
    parts = memory.weights_gib + memory.kv_cache_gib + memory.state_gib + memory.workspace_gib
    assert memory.total_gib == pytest.approx(parts)
    assert memory.fits


def test_workspace_is_one_prefill_pass_and_the_logits() -> None:
    memory = memory_of(spec_of(SMOLLM2, H100, chat(loads=closed(16))))
    # 512 tokens x (2 x 576 + 2 x 1536) values, 16 x 49,152 logits, four bytes each: 8,650,752 + 3,145,728
    assert memory.workspace_gib == pytest.approx(PROCESS_GIB + 11_796_480 / GIB)


def test_a_long_prompt_is_prefilled_in_chunks() -> None:
    short = memory_of(spec_of(LLAMA_8B, H100, chat(prompt_tokens_max=8192, loads=closed(1))))
    long = memory_of(spec_of(LLAMA_8B, H100, chat(prompt_tokens_max=100_000, loads=closed(1))))
    assert long.workspace_gib == short.workspace_gib


def test_a_shared_prefix_is_kept_once_with_one_snapshot_of_the_states() -> None:
    memory = memory_of(spec_of(OLMO, L4, shared()))
    # 32,768 tokens x 122,880 bytes: exactly 3.75 GiB
    assert memory.prefix_kv_gib == 3.75
    # and 20 x 256 tokens x 122,880 = 629,145,600
    assert memory.kv_cache_gib == pytest.approx(3.75 + 629_145_600 / GIB)
    # 20 requests and the prefix's end, 54,743,040 bytes each
    assert memory.state_gib == pytest.approx(21 * 54_743_040 / GIB)


def test_every_prefix_is_counted_and_without_reuse_every_request() -> None:
    fifty = memory_of(spec_of(OLMO, L4, shared(num_prefixes=50)), capacity_gib=None)
    assert fifty.prefix_kv_gib == 50 * 3.75
    by_load = shared(loads={"cold": Load(concurrency=20, num_prefixes=2)}, headline_load="cold")
    assert memory_of(spec_of(OLMO, L4, by_load)).prefix_kv_gib == 2 * 3.75
    own = memory_of(spec_of(OLMO, L4, shared(kind="chat", reuse="none")), capacity_gib=None)
    assert own.prefix_kv_gib == 0
    assert own.kv_cache_gib == pytest.approx(20 * 3.75 + 629_145_600 / GIB)


def test_ranks_hold_their_share() -> None:
    layout = Parallelism(tensor=2, pipeline=1, replicas=1)
    memory = memory_of(spec_of(LLAMA_70B, H100, chat(loads=closed(16))), parallelism=layout)
    # 70,553,706,496 x 2 / 2
    assert memory.weights_gib == 70_553_706_496 / GIB
    # 16 x 640 tokens x 2 x 80 layers x 4 of 8 heads x 128 x 2 bytes = 163,840 a token: 1,677,721,600
    assert memory.kv_cache_gib == pytest.approx(1_677_721_600 / GIB)
    # 512 x (2 x 8192 + 57,344 / 2) values and 16 x 128,256 logits, four bytes: 92,274,688 + 8,208,384
    assert memory.workspace_gib == pytest.approx(PROCESS_GIB + 100_483_072 / GIB)


def test_replicas_share_the_requests() -> None:
    layout = Parallelism(tensor=1, pipeline=1, replicas=3)
    memory = memory_of(spec_of(LLAMA_8B, H100, chat(loads=closed(16))), parallelism=layout)
    assert memory.num_sequences == 6
    assert memory.weights_gib == 16_060_522_496 / GIB


def test_frames_of_speech_are_kept_as_the_tokens_are() -> None:
    encoder = SpeechEncoder(num_layers=2, num_heads=4, head_dim=8, frames_per_s=50, left_frames=16, lookahead_frames=4)
    model = Model(
        id="m", architecture="m", num_parameters=1 << 20, num_layers=2, hidden_size=32, num_heads=4, num_kv_heads=4,
        head_dim=8, vocab_size=64, speech_encoder=encoder,
    )  # fmt: skip
    # a window of 20 frames: 2 x 2 layers x 4 heads x 8 x 20 x 2 bytes
    assert encoder_state_bytes(encoder, model=model) == 5_120
    workload = Workload(
        kind="streaming_asr", prompt_tokens_min=1, prompt_tokens_max=1, output_tokens_max=99, audio_s_max=10,
        loads=closed(1), headline_load="c1",
    )  # fmt: skip
    memory = memory_of(spec_of(model, H100, workload))
    # 1 + 99 tokens and 10 s x 50 frames: 600 positions x 2 x 2 layers x 4 x 8 x 2 bytes
    assert memory.kv_cache_gib == pytest.approx(600 * 256 / GIB)
    assert memory.state_gib == pytest.approx(5_120 / GIB)


def test_an_unknown_capacity_refuses_nothing() -> None:
    assert memory_of(spec_of(LLAMA_70B, H100), capacity_gib=None).fits
    assert not memory_of(spec_of(LLAMA_70B, H100), capacity_gib=79.6).fits


def test_open_loops_hold_what_littles_law_says() -> None:
    loads = {"r0.5": Load(rate_per_s=0.5), "r0.001": Load(rate_per_s=0.001), "c4": Load(concurrency=4)}
    workload = chat(output_tokens_max=100, slo=Slo(ttft_s=2.0, tpot_s=0.1), loads=loads)
    # 0.5 a second for 2 s + 100 x 0.1 s
    assert num_in_flight(workload, "r0.5") == 6
    assert num_in_flight(workload, "r0.001") == 1
    assert num_in_flight(workload, "c4") == 4


def test_a_load_may_have_lengths_of_its_own() -> None:
    loads = {"c1": Load(concurrency=1), "o32": Load(concurrency=1, output_tokens=32)}
    spec = spec_of(SMOLLM2, H100, replace(chat(), loads=loads, headline_load="c1"))
    assert (demand_of(spec, "c1").output_min, demand_of(spec, "c1").output_max) == (64, 128)
    assert (demand_of(spec, "o32").output_min, demand_of(spec, "o32").output_max) == (32, 32)
