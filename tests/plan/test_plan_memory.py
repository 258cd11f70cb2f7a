"""Memory of one server from the declared loads."""

from __future__ import annotations

import pytest

from vibeserve.plan.memory import GIB, estimate_memory, num_in_flight
from vibeserve.spec import Hardware, Load, Model, Slo, Spec, Workload


def spec(**workload: object) -> Spec:
    model = Model(
        id="m", architecture="llama", num_parameters=1 << 30, num_layers=8, hidden_size=512,
        num_kv_heads=4, head_dim=64, vocab_size=32000,
    )  # fmt: skip
    loads = {"c1": Load(concurrency=1), "c16": Load(concurrency=16)}
    kind = Workload(kind="chat", loads=loads, prompt_tokens_max=900, output_tokens_max=100, **workload)  # type: ignore[arg-type]
    return Spec(model=model, hardware=Hardware(name="cpu"), workload=kind)


def test_weights_and_cache_of_the_largest_load() -> None:
    memory = estimate_memory(spec(), capacity_gib=8)
    assert memory.weights_gib == pytest.approx(2.0)
    assert memory.kv_cache_gib == pytest.approx(16 * 1000 * (2 * 8 * 4 * 64 * 2) / GIB)
    parts = memory.weights_gib + memory.kv_cache_gib + memory.state_gib + memory.workspace_gib
    assert memory.total_gib == pytest.approx(parts)
    assert memory.workspace_gib > 0.5


def test_open_loops_hold_what_littles_law_says() -> None:
    workload = Workload(kind="chat", output_tokens_max=100, slo=Slo(ttft_s=2.0, tpot_s=0.1))
    assert num_in_flight(Load(rate_per_s=0.5), workload) == 6
    assert num_in_flight(Load(rate_per_s=0.001), workload) == 1
    assert num_in_flight(Load(concurrency=4), workload) == 4
