"""Specs of the worked examples in `docs/feasibility.md`: the facts are stated here again, not read from `conf/`."""

from __future__ import annotations

from dataclasses import replace

from vibeserve.hardware import HardwareFacts
from vibeserve.plan.floors import Floors
from vibeserve.plan.nouns import Roof
from vibeserve.spec import (
    Baseline,
    DeclaredValue,
    Goal,
    Hardware,
    LinearState,
    Load,
    Model,
    Parallelism,
    Spec,
    TargetInfo,
    Workload,
)

FACTS = HardwareFacts(
    system="Linux", kernel="6.1", cpu_model="Some CPU", cpu_flags=("avx2",), cpus=(0, 1, 2, 3), memory_gib=15.6,
    gpu_note="no NVIDIA driver on this machine", bandwidth_gb_s=15.0,
)  # fmt: skip

LLAMA_8B = Model(
    id="llama_8b", architecture="llama", num_parameters=8_030_261_248, num_layers=32, hidden_size=4096,
    intermediate_size=14336, num_heads=32, num_kv_heads=8, head_dim=128, vocab_size=128256, max_context_tokens=131072,
)  # fmt: skip

LLAMA_70B = Model(
    id="llama_70b", architecture="llama", num_parameters=70_553_706_496, num_layers=80, hidden_size=8192,
    intermediate_size=28672, num_heads=64, num_kv_heads=8, head_dim=128, vocab_size=128256, max_context_tokens=131072,
)  # fmt: skip

OLMO = Model(
    id="olmo", architecture="olmo_hybrid", num_parameters=7_430_870_688, num_layers=32, num_attention_layers=8,
    hidden_size=3840, intermediate_size=11008, num_heads=30, num_kv_heads=30, head_dim=128, vocab_size=100352,
    max_context_tokens=65536,
    linear_state=LinearState(
        num_layers=24, num_key_heads=30, num_value_heads=30, key_head_dim=96, value_head_dim=192, conv_kernel=4
    ),
)  # fmt: skip

SMOLLM2 = Model(
    id="smollm2", architecture="llama", num_parameters=134_515_008, num_layers=30, hidden_size=576,
    intermediate_size=1536, num_heads=9, num_kv_heads=3, head_dim=64, vocab_size=49152, tied_embeddings=True,
)  # fmt: skip

H100 = Hardware(
    name="h100", kind="cuda", memory_gib=79.6, bandwidth_gb_s=3350, tflops_f32=67, tflops_bf16=989, tops_int8=1979,
    sm=90, interconnect_gb_s=450, usd_per_hour=3.0,
)  # fmt: skip

L4 = Hardware(
    name="l4", kind="cuda", memory_gib=22.5, bandwidth_gb_s=300, tflops_f32=30.3, tflops_bf16=121, tops_int8=242, sm=89,
)  # fmt: skip

CPU = Hardware(name="cpu", bandwidth_gb_s=15)

ONE = Parallelism(tensor=1, pipeline=1, replicas=1)

THROUGHPUT = Goal(metric="output_throughput", load="c8", min_ratio=1.5, against="competent")


def closed(*sizes: int) -> dict[str, Load]:
    return {f"c{size}": Load(concurrency=size) for size in sizes}


def chat(**changes: object) -> Workload:
    fields: dict[str, object] = {"kind": "chat", "loads": closed(1, 8), "headline_load": "c8"}
    return Workload(**(fields | changes))  # type: ignore[arg-type]


def shared(**changes: object) -> Workload:
    """Twenty users behind one prefix of 32,768 tokens, 128 of their own, 128 out."""
    fields: dict[str, object] = {
        "kind": "shared_prefix", "shared_prefix_tokens": 32768, "prompt_tokens_min": 128, "prompt_tokens_max": 128,
        "output_tokens_min": 128, "output_tokens_max": 128, "loads": closed(20), "headline_load": "c20",
        "reuse": "prefix",
    }  # fmt: skip
    return Workload(**(fields | changes))  # type: ignore[arg-type]


def spec_of(model: Model, hardware: Hardware, workload: Workload | None = None, **changes: object) -> Spec:
    fields: dict[str, object] = {
        "target": TargetInfo(name="sample", twin="smollm2_cpu"), "model": replace(model), "hardware": replace(hardware),
        "workload": workload or chat(), "parallelism": ONE, "goals": [THROUGHPUT], "baseline": {"vllm": Baseline()},
    }  # fmt: skip
    return Spec(**(fields | changes))  # type: ignore[arg-type]


def floors_of(spec: Spec, *, tflops: float = 0.0) -> Floors:
    """Under the declared rates of the spec's hardware."""
    hardware = spec.hardware
    roof = Roof(
        bandwidth_gb_s=hardware.bandwidth_gb_s, tflops=tflops or hardware.tflops_bf16,
        interconnect_gb_s=hardware.interconnect_gb_s,
    )  # fmt: skip
    return Floors(spec, roof)


def declared(metric: str, value: float, *, load: str = "") -> Baseline:
    figure = DeclaredValue(metric=metric, load=load, value=value, source="a sample")
    return Baseline(declared=[figure])
