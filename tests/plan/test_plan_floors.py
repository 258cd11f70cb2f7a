"""Floors and ceilings by hand: the examples of `docs/feasibility.md` and what surrounds them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plan_samples import (
    CPU,
    H100,
    L4,
    LLAMA_8B,
    LLAMA_70B,
    OLMO,
    SMOLLM2,
    chat,
    closed,
    floors_of,
    shared,
    spec_of,
)

from vibeserve.plan.ceilings import compute_ceilings
from vibeserve.plan.demand import demand_of
from vibeserve.plan.floors import tflops_of
from vibeserve.plan.memory import GIB
from vibeserve.spec import (
    Evaluation,
    ImageHead,
    Load,
    Modality,
    Model,
    Parallelism,
    Precision,
    Spec,
    SpeechEncoder,
    Workload,
)

TWO = Parallelism(tensor=2, pipeline=1, replicas=1)


def ceilings_of(spec: Spec, *, tflops: float = 0.0) -> dict[tuple[str, str], tuple[float, str]]:
    """(metric, load) -> (value, what bounds it)"""
    found = compute_ceilings(spec, floors_of(spec, tflops=tflops))
    return {(item.metric, item.load): (item.value, item.bound_by) for item in found}


def value(spec: Spec, metric: str, load: str) -> float:
    return ceilings_of(spec)[metric, load][0]


def test_llama_8b_on_an_h100_decodes_by_bytes() -> None:
    spec = spec_of(LLAMA_8B, H100, chat(loads=closed(1, 64), headline_load="c64"))
    floors = floors_of(spec)
    alone = floors.decode_floor(demand_of(spec, "c1"), num_sequences=1)
    # 8,030,261,248 - 128,256 x 4,096 = 7,504,924,672 parameters are read, 15,009,849,344 bytes; 128 tokens of cache,
    # 131,072 bytes each, 16,777,216; at 3,350 GB/s
    assert alone.weights_gib == 15_009_849_344 / GIB
    assert alone.kv_gib == 16_777_216 / GIB
    assert alone.step_s == pytest.approx(4.485560e-3, rel=1e-6)
    assert alone.bound_by == "bandwidth"
    batch = floors.decode_floor(demand_of(spec, "c64"), num_sequences=64)
    # 64 x 16,777,216 = 1 GiB of caches
    assert batch.kv_gib == 1.0
    assert batch.step_s == pytest.approx(4.801072e-3, rel=1e-6)


def test_llama_8b_on_an_h100_prefills_by_arithmetic() -> None:
    spec = spec_of(LLAMA_8B, H100, chat(prompt_tokens_min=512, loads=closed(1), headline_load="c1"))
    floor = floors_of(spec).prefill(demand_of(spec, "c1"))
    # 2 x 6,979,588,096 x 512 (all but both embeddings) + 2 x 525,336,576 (one row of logits) + 68,853,694,464 of
    # attention = 7,217,002,577,920 operations at 989 TFLOP/s
    assert floor.compute_s == pytest.approx(7.297273e-3, rel=1e-6)
    # weights once: 15,009,849,344 bytes at 3,350 GB/s
    assert floor.bandwidth_s == pytest.approx(4.480552e-3, rel=1e-6)
    assert ceilings_of(spec)["ttft_p50", "c1"] == (pytest.approx(7.297273e-3, rel=1e-6), "compute")


def test_ceilings_of_closed_loops() -> None:
    spec = spec_of(LLAMA_8B, H100, chat(loads=closed(1, 64), headline_load="c64"))
    # 64 tokens in 4.801072 ms
    assert value(spec, "output_throughput", "c64") == pytest.approx(13_330.36, rel=1e-6)
    # 64 replies of at least 64 tokens
    assert value(spec, "request_throughput", "c64") == pytest.approx(13_330.36 / 64, rel=1e-6)
    # first token 4.480552 ms, then 127 (63) steps of 4.485560 ms alone
    e2el_s = 4.480552e-3 + 63 * 4.485560e-3
    assert value(spec, "e2el_p50", "c64") == pytest.approx(e2el_s, rel=1e-6)
    assert value(spec, "request_throughput", "c1") == pytest.approx(64 / (64 * e2el_s), rel=1e-4)
    assert value(spec, "tpot_p50", "c64") == pytest.approx(4.485560e-3, rel=1e-6)


def test_ceilings_of_open_loops_are_what_is_offered_or_what_the_caches_allow() -> None:
    loads = {"r8": Load(rate_per_s=8.0), "r9999": Load(rate_per_s=9999.0)}
    found = ceilings_of(spec_of(LLAMA_8B, replace(H100, tflops_bf16=0), chat(loads=loads, headline_load="r8")))
    # 8 requests of at most 128 tokens a second
    assert found["output_throughput", "r8"] == (8 * 128, "offered load")
    assert found["request_throughput", "r8"] == (8, "offered load")
    # any batch: 16,777,216 bytes of cache a token at 3,350 GB/s = 199,675.6 tokens, 128 to a request
    assert found["output_throughput", "r9999"] == (pytest.approx(199_675.6, rel=1e-6), "bandwidth")
    by_compute = ceilings_of(spec_of(LLAMA_8B, H100, chat(loads=loads, headline_load="r8")))
    assert by_compute["output_throughput", "r9999"][1] == "compute"


def test_the_arithmetic_of_prefill_and_decode_bounds_throughput() -> None:
    workload = chat(prompt_tokens_min=512, output_tokens_min=128, loads=closed(1024), headline_load="c1024")
    rate, why = ceilings_of(spec_of(LLAMA_8B, H100, workload))["output_throughput", "c1024"]
    # prefill 7,217,002,577,920; each of 127 further tokens 2 x 7,504,924,672 + 524,288 x 513 = 15,278,809,088
    # (524,288 = 4 x 32 layers x 32 heads x 128); together 9,157,411,332,096 operations for 128 tokens at 989 TFLOP/s
    assert (rate, why) == (pytest.approx(13_823.99, rel=1e-6), "compute")


def test_olmo_on_an_l4_behind_a_shared_prefix() -> None:
    spec = spec_of(OLMO, L4, shared())
    floor = floors_of(spec).decode_floor(demand_of(spec, "c20"), num_sequences=20)
    # 7,430,870,688 - 100,352 x 3,840 = 7,045,519,008 parameters: 14,091,038,016 bytes
    assert floor.weights_gib == 14_091_038_016 / GIB
    # the prefix once, 3.75 GiB = 4,026,531,840 bytes, and 20 x 128 x 122,880 = 314,572,800
    assert floor.kv_gib == pytest.approx(4_341_104_640 / GIB)
    # 20 states of 54,743,040 bytes, read and written
    assert floor.state_gib == pytest.approx(2_189_721_600 / GIB)
    # 20,621,864,256 bytes at 300 GB/s
    assert floor.step_s == pytest.approx(68.739548e-3, rel=1e-6)
    assert value(spec, "output_throughput", "c20") == pytest.approx(20 / 68.739548e-3, rel=1e-6)


def test_a_warm_prefix_is_read_and_not_computed() -> None:
    spec = spec_of(OLMO, L4, shared())
    floor = floors_of(spec).prefill(demand_of(spec, "c20"))
    assert (floor.num_tokens, floor.num_cached_tokens) == (128, 32768)
    # 2 x 6,660,167,328 x 128 + 2 x 385,351,680 + 516,410,572,800 of attention = 2,222,184,112,128 at 121 TFLOP/s
    assert floor.compute_s == pytest.approx(18.365158e-3, rel=1e-6)
    # weights and the prefix's cache: 14,091,038,016 + 4,026,531,840 bytes at 300 GB/s
    assert floor.bandwidth_s == pytest.approx(60.391900e-3, rel=1e-6)
    assert ceilings_of(spec)["ttft_p50", "c20"] == (pytest.approx(60.391900e-3, rel=1e-6), "bandwidth")


def test_an_unshared_prefix_is_computed_by_every_request() -> None:
    spec = spec_of(OLMO, L4, shared(kind="chat", reuse="none"))
    floor = floors_of(spec).prefill(demand_of(spec, "c20"))
    assert (floor.num_tokens, floor.num_cached_tokens) == (32896, 0)


def test_smollm2_on_a_cpu() -> None:
    spec = spec_of(SMOLLM2, CPU)
    floor = floors_of(spec).decode_floor(demand_of(spec, "c8"), num_sequences=8)
    # tied: all 134,515,008 parameters, 269,030,016 bytes; 8 x 128 x 23,040 = 23,592,960 of caches; at 15 GB/s
    assert floor.step_s == pytest.approx(19.508198e-3, rel=1e-6)
    assert value(spec, "output_throughput", "c8") == pytest.approx(8 / 19.508198e-3, rel=1e-6)
    # arithmetic is not declared: a first token takes one reading of the weights
    assert ceilings_of(spec)["ttft_p50", "c8"] == (pytest.approx(269_030_016 / 15e9), "bandwidth")


def test_two_ranks_share_the_bytes_and_talk() -> None:
    spec = spec_of(LLAMA_70B, replace(H100, count=2), parallelism=TWO)
    floor = floors_of(spec).decode_floor(demand_of(spec, "c8"), num_sequences=8)
    # 70,553,706,496 - 1,050,673,152 = 69,503,033,344 parameters, two bytes, half of them: 20.747174 ms at 3,350 GB/s;
    # caches 8 x 128 x 163,840 = 167,772,160 bytes: 0.050081 ms
    assert floor.weights_gib == 69_503_033_344 / GIB
    assert floor.kv_gib == pytest.approx(167_772_160 / GIB)
    # 2 x 80 all-reduces of 8 x 8,192 x 2 = 131,072 bytes; each rank sends 2 x 1/2 of them at 450 GB/s
    assert floor.all_reduce_s == pytest.approx(46.603e-6, rel=1e-4)
    assert floor.step_s == pytest.approx(20.843858e-3, rel=1e-6)


def test_an_unknown_interconnect_is_left_out() -> None:
    spec = spec_of(LLAMA_70B, replace(H100, count=2, interconnect_gb_s=0.0), parallelism=TWO)
    floor = floors_of(spec).decode_floor(demand_of(spec, "c8"), num_sequences=8)
    assert floor.all_reduce_s is None
    assert floor.step_s == pytest.approx(20.797255e-3, rel=1e-6)


def test_a_pipeline_shortens_no_token_but_serves_more() -> None:
    hardware = replace(H100, count=2, interconnect_gb_s=0.0, tflops_bf16=0.0)
    piped = spec_of(LLAMA_70B, hardware, parallelism=Parallelism(tensor=1, pipeline=2, replicas=1))
    # a token passes both stages: all 139,006,066,688 bytes one after the other, with the caches of its micro-batch of
    # four, 4 x 128 x 327,680 = 167,772,160 bytes
    step_s = (139_006_066_688 + 167_772_160) / 3350e9
    floor = floors_of(piped).decode_floor(demand_of(piped, "c8"), num_sequences=8)
    assert floor.step_s == pytest.approx(step_s)
    assert floor.weights_gib == 139_006_066_688 / 2 / GIB
    assert value(piped, "output_throughput", "c8") == pytest.approx(8 / step_s)


def test_replicas_serve_side_by_side() -> None:
    hardware = replace(H100, count=4)
    spec = spec_of(LLAMA_8B, hardware, parallelism=Parallelism(tensor=1, pipeline=1, replicas=4))
    # two of eight requests on each replica: 15,009,849,344 + 2 x 16,777,216 bytes
    step_s = (15_009_849_344 + 33_554_432) / 3350e9
    assert value(spec, "output_throughput", "c8") == pytest.approx(8 / step_s)


def test_peak_memory_is_of_one_rank_with_one_sequence() -> None:
    spec = spec_of(OLMO, L4, shared())
    # 14,861,741,376 bytes of weights, 32,896 x 122,880 of cache, one state
    assert ceilings_of(spec)["peak_memory", ""][0] == pytest.approx((14_861_741_376 + 4_042_260_480 + 54_743_040) / GIB)
    two = spec_of(LLAMA_70B, replace(H100, count=2), parallelism=TWO)
    assert ceilings_of(two)["peak_memory", ""][0] == pytest.approx((70_553_706_496 + 128 * 163_840) / GIB)


def test_any_precision_counts_four_bits_and_no_caches() -> None:
    spec = spec_of(LLAMA_8B, H100, evaluation=Evaluation(precision=Precision.any))
    assert tflops_of(spec) == 1979
    floor = floors_of(spec).decode_floor(demand_of(spec, "c8"), num_sequences=8)
    assert floor.weights_gib == 7_504_924_672 / 2 / GIB
    assert floor.kv_gib == floor.state_gib == 0
    assert tflops_of(spec_of(replace(LLAMA_8B, dtype="float32"), H100)) == 67


def test_a_foretold_answer_has_no_floor_per_token() -> None:
    loads = {"edits": Load(concurrency=1, prediction="edits"), "useless": Load(concurrency=1, prediction="useless")}
    spec = spec_of(LLAMA_8B, H100, chat(kind="code_edit", loads=loads, headline_load="edits"))
    found = ceilings_of(spec)
    assert ("tpot_p50", "edits") not in found
    assert ("tpot_p50", "useless") in found
    # one pass over 128 + 63 tokens: reading the weights takes 4.480552 ms; its 2 x 6,979,588,096 x 191
    # + 2 x 525,336,576 x 64 + 524,288 x 191 x 192 / 2 = 2,743,059,079,168 operations take 2.77 ms at 989 TFLOP/s
    assert found["e2el_p50", "edits"] == (pytest.approx(4.480552e-3, rel=1e-6), "bandwidth")
    assert found["e2el_p50", "useless"][0] > 60 * found["e2el_p50", "edits"][0]
    assert found["output_throughput", "edits"][0] > 20 * found["output_throughput", "useless"][0]


def test_only_the_active_experts_are_read() -> None:
    model = replace(LLAMA_8B, num_parameters=80_000_000_000, num_active_parameters=3_525_336_576)
    spec = spec_of(model, H100)
    # 3,525,336,576 - 525,336,576 active ones beside the input embedding: 6 GB
    assert floors_of(spec).work.weight_bytes == 6_000_000_000


def test_weights_that_fit_the_caches_bound_nothing_by_reading() -> None:
    tiny = replace(SMOLLM2, num_parameters=30_000_000)
    spec = spec_of(tiny, CPU)
    assert set(ceilings_of(spec)) == {("peak_memory", "")}
    # with a known arithmetic rate that bounds instead
    assert ceilings_of(spec, tflops=1.0)["tpot_p50", "c8"][1] == "compute"


def test_a_model_of_unknown_size_has_no_ceilings() -> None:
    assert ceilings_of(spec_of(replace(LLAMA_8B, num_parameters=0), H100)) == {}


IMAGE = Model(
    id="image", architecture="show_o2", modality=Modality.image, num_parameters=2_831_185_120, num_layers=28,
    hidden_size=1536, intermediate_size=8960, num_heads=12, num_kv_heads=2, head_dim=128, vocab_size=151936,
    tied_embeddings=True,
    image_head=ImageHead(
        kind="flow", num_layers=10, hidden_size=2048, intermediate_size=8192, num_heads=32, num_kv_heads=8,
        head_dim=64, num_tokens=729,
    ),
)  # fmt: skip


def image_workload(**changes: object) -> Workload:
    fields: dict[str, object] = {
        "kind": "text_to_image", "loads": closed(1), "headline_load": "c1", "num_steps": 20, "guidance_scale": 5.0,
    }  # fmt: skip
    return Workload(**(fields | changes))  # type: ignore[arg-type]


def test_an_image_by_flow_takes_every_step_twice_under_guidance() -> None:
    # body: 28 x (2 x 1536 x 128 x 14 + 3 x 1536 x 8960) = 1,310,195,712; head: 10 x (2 x 2048 x 64 x 40 + 3 x 2048 x
    # 8192) = 608,174,080; together 1,918,369,792. 2 x that x 729 tokens x 20 steps x 2 = 1.118790e14 operations
    floor = ceilings_of(spec_of(IMAGE, H100, image_workload()))["e2el_p50", "c1"]
    assert floor == (pytest.approx(1.118793e14 / 989e12, rel=1e-5), "compute")
    plain = ceilings_of(spec_of(IMAGE, H100, image_workload(guidance_scale=1.0)))["e2el_p50", "c1"]
    assert plain[0] == pytest.approx(floor[0] / 2)
    assert value(spec_of(IMAGE, H100, image_workload()), "request_throughput", "c1") == pytest.approx(1 / floor[0])


def test_an_image_token_by_token_reads_the_blocks_for_each() -> None:
    drawn = replace(IMAGE, image_head=ImageHead(kind="tokens", num_tokens=576))
    floor = ceilings_of(spec_of(drawn, replace(H100, tflops_bf16=0), image_workload()))["e2el_p50", "c1"]
    # 576 passes, each reads 1,310,195,712 x 2 bytes at 3,350 GB/s
    assert floor == (pytest.approx(576 * 2 * 1_310_195_712 / 3350e9), "bandwidth")


def test_a_partial_transcript_reads_the_weights_once_or_encodes_its_chunk() -> None:
    encoder = SpeechEncoder(
        num_layers=14, hidden_size=768, intermediate_size=3072, num_heads=10, head_dim=64, frames_per_s=50
    )
    model = Model(
        id="asr", architecture="moonshine_streaming", modality=Modality.speech, num_parameters=265_898_113,
        num_layers=14, hidden_size=640, intermediate_size=2560, num_heads=10, num_kv_heads=10, head_dim=64,
        vocab_size=32768, speech_encoder=encoder,
    )  # fmt: skip
    workload = Workload(kind="streaming_asr", chunk_s=0.5, audio_s_max=20, loads=closed(4), headline_load="c4")
    found = ceilings_of(spec_of(model, L4, workload))
    # 265,898,113 - 32,768 x 640 = 244,926,593 parameters, two bytes, at 300 GB/s
    assert found["time_to_partial_p50", "c4"] == (pytest.approx(1.632844e-3, rel=1e-6), "bandwidth")
    # encoder: 14 x (4 x 768 x 640 + 2 x 768 x 3072) = 93,585,408 parameters, two operations each for 50 frames a second
    assert found["realtime_sessions", "c4"] == (pytest.approx(121e12 / 9_358_540_800), "compute")
