"""The checked-in targets: every one compiles, and the worked examples of `docs/feasibility.md` are what they give."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from plan_samples import FACTS

from vibeserve.config import compose_spec, list_targets
from vibeserve.plan import Plan, compile_plan
from vibeserve.spec import Modality

GIB = 1 << 30
ROOT = Path(__file__).resolve().parents[2]
TARGETS = [target.name for target in list_targets(ROOT) if target.origin == "package"]


@pytest.fixture(autouse=True)
def frozen_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vibeserve.plan.digests.framework_digest", lambda: "f" * 64)


@cache
def planned(name: str) -> Plan:
    return compile_plan(compose_spec([f"+target={name}", "sandbox=none"], cwd=ROOT), facts=FACTS)


def ceiling(plan: Plan, metric: str, load: str = "") -> float:
    (found,) = [item.value for item in plan.ceilings if (item.metric, item.load) == (metric, load)]
    return found


@pytest.mark.parametrize("name", TARGETS)
def test_every_target_is_planned_for_on_any_machine(name: str) -> None:
    plan = planned(name)
    assert plan.memory.fits
    assert plan.memory.weights_gib > 0
    assert ceiling(plan, "peak_memory") > 0
    is_here = plan.spec.hardware.kind == "cpu"
    assert any(obstacle.kind == "host" for obstacle in plan.obstacles) is not is_here
    if plan.spec.model.modality is Modality.text:
        assert {floor.load for floor in plan.decode} == set(plan.spec.workload.loads)


def test_olmo_on_an_l4() -> None:
    plan = planned("olmo_l4")
    memory = plan.memory
    assert (memory.load, memory.num_sequences, memory.capacity_gib) == ("c20", 20, 22.5)
    assert memory.weights_gib == pytest.approx(14_861_741_376 / GIB)
    # 32,768 x 122,880 bytes
    assert memory.prefix_kv_gib == 3.75
    assert memory.kv_cache_gib == pytest.approx(4_655_677_440 / GIB)
    # (20 + 1) x 54,743,040 bytes
    assert memory.state_gib == pytest.approx(1_149_603_840 / GIB)
    # 0.5 GiB and 4 x (8,192 x 29,696 + 20 x 100,352) bytes
    assert memory.workspace_gib == pytest.approx(0.5 + 981_106_688 / GIB)
    assert memory.total_gib == pytest.approx(20.661, abs=1e-3)
    assert ceiling(plan, "output_throughput", "c20") == pytest.approx(290.95, abs=0.01)
    assert ceiling(plan, "ttft_p50", "c20") == pytest.approx(60.392e-3, abs=1e-6)


def test_llama_8b_on_an_h100() -> None:
    plan = planned("llama_h100")
    assert plan.memory.weights_gib == pytest.approx(16_060_522_496 / GIB)
    assert plan.roof.bandwidth_gb_s == 3350
    assert ceiling(plan, "tpot_p50", "r8") == pytest.approx(4.485560e-3, rel=1e-6)
    assert ceiling(plan, "ttft_p50", "r8") == pytest.approx(4.480552e-3, rel=1e-6)
    assert ceiling(plan, "request_throughput", "r32") == 32


def test_llama_70b_on_two_h100s() -> None:
    plan = planned("llama70b_2xh100")
    layout = plan.spec.parallelism
    assert (layout.tensor, layout.pipeline, layout.replicas) == (2, 1, 1)
    assert plan.memory.weights_gib == pytest.approx(70_553_706_496 / GIB)
    (floor,) = [floor for floor in plan.decode if floor.load == "c8"]
    assert floor.all_reduce_s == pytest.approx(46.603e-6, rel=1e-4)
    assert floor.step_s == pytest.approx(20.843858e-3, rel=1e-6)


def test_smollm2_on_a_cpu() -> None:
    plan = planned("smollm2_cpu")
    assert plan.memory.weights_gib == pytest.approx(269_030_016 / GIB)
    assert plan.memory.kv_cache_gib == pytest.approx(235_929_600 / GIB)
    assert plan.memory.capacity_gib == FACTS.memory_gib
    (floor,) = [floor for floor in plan.decode if floor.load == "c8"]
    assert floor.step_s == pytest.approx(19.508198e-3, rel=1e-6)


def test_the_page_states_these_numbers() -> None:
    text = " ".join((ROOT / "docs" / "feasibility.md").read_text(encoding="utf-8").split())
    for figure in ("3.75", "1.071", "20.66", "68.74", "60.39", "4.486", "4.481", "20.84", "0.0466", "19.51", "410"):
        assert figure in text, figure
