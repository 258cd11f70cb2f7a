"""Spec -> Plan: what is resolved, what is hashed, what is refused."""

from __future__ import annotations

import copy
import dataclasses
import json
import re
from functools import cache
from pathlib import Path

import pytest

from vibeserve.config import compose_spec
from vibeserve.errors import InfraError, SpecError
from vibeserve.hardware import GpuFacts, HardwareFacts
from vibeserve.plan import Plan, compile_plan, plan_document
from vibeserve.plan.steps import GRAPH
from vibeserve.sandbox import probe_tiers
from vibeserve.spec import Spec, Tier

FACTS = HardwareFacts(
    system="Linux",
    kernel="6.1",
    cpu_model="Some CPU",
    cpu_flags=("avx2",),
    cpus=(0, 1, 2, 3),
    memory_gib=15.6,
    gpu_note="no NVIDIA driver on this machine",
    bandwidth_gb_s=15.0,
)


@pytest.fixture(autouse=True)
def frozen_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    """A source file that is saved while the tests run must not change a plan between two lines of a test."""
    monkeypatch.setattr("vibeserve.plan.digests.framework_digest", lambda: "f" * 64)


@cache
def composed(*overrides: str) -> Spec:
    # no wall: which tiers this machine can build is not what these tests are about
    return compose_spec(["sandbox=none", *overrides])


def spec_of(*overrides: str, target: str = "smollm2_cpu") -> Spec:
    return copy.deepcopy(composed(f"+target={target}", *overrides))


def plan_of(*overrides: str, target: str = "smollm2_cpu", facts: HardwareFacts = FACTS) -> Plan:
    return compile_plan(spec_of(*overrides, target=target), facts=facts)


def refused(*overrides: str, target: str = "smollm2_cpu", facts: HardwareFacts = FACTS) -> str:
    with pytest.raises(SpecError) as caught:
        plan_of(*overrides, target=target, facts=facts)
    return str(caught.value)


def test_no_auto_is_left() -> None:
    plan = plan_of()
    assert (plan.engine_cpus, plan.client_cpus, plan.threads) == ((0, 1, 2), (3,), 3)
    assert (plan.spec.hardware.engine_cpus, plan.spec.hardware.client_cpus) == ("0-2", "3")
    assert plan.spec.hardware.engine_threads == 3
    assert plan.spec.sandbox.tier is Tier.C
    assert "auto" not in json.dumps(plan_document(plan))


def test_auto_tier_becomes_the_strongest_that_works() -> None:
    usable = [tier for tier, text in probe_tiers().items() if tier != "C" and text == "available"]
    spec = compose_spec(["+target=tiny_cpu"])
    if usable:
        assert compile_plan(spec, facts=FACTS).spec.sandbox.tier.value == usable[0]
    else:
        with pytest.raises(InfraError, match="tier"):
            compile_plan(spec, facts=FACTS)


def test_the_spec_is_not_written_to() -> None:
    spec = spec_of()
    before = dataclasses.replace(spec.hardware)
    compile_plan(spec, facts=FACTS)
    assert spec.hardware == before


def test_sizes_of_a_seeded_model_come_from_its_configuration() -> None:
    model = plan_of(target="tiny_cpu").spec.model
    assert (model.num_layers, model.hidden_size, model.num_kv_heads, model.vocab_size) == (2, 64, 2, 1024)
    # two embeddings that are not tied; two layers of attention (q and o, k and v), MLP and two norms; the last norm
    layer = 2 * 64 * 16 * (4 + 2) + 3 * 64 * 128 + 2 * 64
    assert model.num_parameters == 2 * 1024 * 64 + 2 * layer + 64
    tied = plan_of("+model.source.config.tie_word_embeddings=1", target="tiny_cpu").spec.model
    assert tied.num_parameters == 1024 * 64 + 2 * layer + 64


def test_the_same_inputs_give_the_same_plan() -> None:
    assert plan_of().plan_id == plan_of().plan_id
    assert len(plan_of().plan_id) == 16


@pytest.mark.parametrize("override", ["budget.rounds=3", "search.seed=1", "workload.headline_load=c4", "baseline=all"])
def test_a_changed_spec_is_another_plan(override: str) -> None:
    assert plan_of(override).plan_id != plan_of().plan_id


@pytest.mark.parametrize("override", ["out_dir=elsewhere", "require_goal=true", "target.description=other"])
def test_where_a_result_goes_is_not_part_of_the_plan(override: str) -> None:
    assert plan_of(override).plan_id == plan_of().plan_id


def test_measured_numbers_stay_out_of_the_hash_and_the_machine_is_in_it() -> None:
    slower = dataclasses.replace(FACTS, bandwidth_gb_s=7.0)
    assert plan_of(facts=slower).plan_id == plan_of().plan_id
    assert plan_of(facts=slower).ceilings != plan_of().ceilings
    other = dataclasses.replace(FACTS, cpu_flags=("avx2", "avx512f"))
    assert plan_of(facts=other).plan_id != plan_of().plan_id


def test_unmeasured_bandwidth_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vibeserve.plan.compile.measure_bandwidth_gb_s", lambda cpus: 10.0 * len(cpus))
    plan = plan_of(facts=dataclasses.replace(FACTS, bandwidth_gb_s=0.0))
    # one request: 269 MB of weights and 128 tokens of cache at 30 GB/s
    (step,) = [c for c in plan.ceilings if (c.metric, c.load) == ("tpot_p50", "c1")]
    assert step.value == pytest.approx((134515008 * 2 + 128 * 23040) / 30e9, rel=1e-6)
    assert step.bound_by == "measured bandwidth"


def test_cores_that_both_sides_would_use_are_refused() -> None:
    with pytest.raises(SpecError) as caught:
        plan_of("hardware.engine_cpus='0,1'", "hardware.client_cpus='1'")
    assert str(caught.value).splitlines()[1:] == [
        "  hardware.client_cpus: CPU 1 is of hardware.engine_cpus too; a load generator on the engine's cores disturbs "
        "what it measures",
        "next: leave both at auto, or share 0-3 out between them",
    ]
    plan_of("hardware.engine_cpus='0'", "hardware.client_cpus='1'")
    alone = plan_of("hardware.engine_cpus='0'", "hardware.client_cpus='0'", facts=dataclasses.replace(FACTS, cpus=(0,)))
    assert (alone.engine_cpus, alone.client_cpus) == ((0,), (0,))


def test_the_schedule_is_the_levels_scaled() -> None:
    schedule = plan_of("budget=smoke", "evaluation.window_scale=0.5").schedule
    assert (schedule.search_window_s, schedule.search_warmup_s, schedule.search_pairs) == (2.5, 0.5, 5)
    assert (schedule.certify_window_s, schedule.certify_starts, schedule.certify_pairs) == (5.0, 1, 5)


def test_digests_cover_every_input(tmp_path: Path) -> None:
    digests = plan_of().digests
    assert set(digests) == {"framework", "skills", "lock", "model", "target", "hardware"}
    assert all(len(digest) == 64 for digest in digests.values())
    assert plan_of("model.source.version=0.1.3").digests["model"] != digests["model"]
    folder = tmp_path / "weights"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"a")
    local = ["model.source.kind=folder", f"model.source.path={folder}"]
    first = plan_of(*local).digests["model"]
    (folder / "model.safetensors").write_bytes(b"b")
    assert plan_of(*local).digests["model"] != first
    assert "no folder" in refused("model.source.kind=folder", f"model.source.path={tmp_path}/absent")


def test_the_document_has_the_agreed_shape() -> None:
    document = plan_document(plan_of())
    assert list(document) == [
        "schema_version", "plan_id", "target", "steps", "memory", "parallelism", "ceilings", "floors", "ratios", "cost",
        "placement", "notes", "budget", "digests",
    ]  # fmt: skip
    assert set(document["memory"]) == {
        "weights_gib", "kv_cache_gib", "state_gib", "workspace_gib", "total_gib", "capacity_gib", "prefix_kv_gib",
        "load", "num_sequences",
    }  # fmt: skip
    assert document["parallelism"] == {"tensor": 1, "pipeline": 1, "replicas": 1}
    assert set(document["floors"]) == {"roof", "prefill", "decode"}
    assert [floor["load"] for floor in document["floors"]["decode"]] == ["c1", "c4", "c8", "c16"]
    assert all(isinstance(floor["step_s"], float) for floor in document["floors"]["decode"])
    assert all({"metric", "unit", "value", "bound_by"} <= set(ceiling) for ceiling in document["ceilings"])
    assert [step["name"] for step in document["steps"]] == list(GRAPH)
    assert json.loads(json.dumps(document)) == document


def test_estimated_minutes_follow_the_budget() -> None:
    plan = plan_of()
    assert plan.minutes <= 30.1
    assert plan_of("budget=smoke").minutes <= 15.1
    assert plan_of(target="tiny_cpu").minutes < 3
    by_name = {step.name: step for step in plan.steps}
    assert by_name["synthesize"].needs == ("reference", "baselines")
    windows_s, rescored_s = 3 * (2 + 20), 1.2 * 3 * 3 * 20
    measured_s, screened_s = 3 * 3 * (15 + windows_s), 15 + 15
    assert by_name["certify"].minutes == pytest.approx((measured_s + 60 + 120 + screened_s + rescored_s) / 60, abs=0.1)


def test_a_budget_without_time_for_all_its_rounds_says_how_many_it_has_and_what_would_do() -> None:
    def told(*overrides: str) -> list[str]:
        return [note for note in plan_of(*overrides).notes if "has room for all" in note]

    (small,) = told()
    found = re.fullmatch(
        r"budget.wall_s 1800 leaves time for about (\d) of 4 rounds after round 0; "
        r"budget.wall_s=(\d+) has room for all 4",
        small,
    )
    assert found is not None and int(found[1]) < 4
    assert told(f"budget.wall_s={found[2]}") == []
    (all_peers,) = told("baseline=all")
    assert all_peers.startswith(("budget.wall_s 1800 leaves time for about 0", "no time is left to search"))
    (none,) = told("budget.wall_s=900")
    assert none.startswith("no time is left to search: budget.wall_s 900, the other steps take ")


def test_declared_numbers_of_a_gpu_are_used_as_they_are() -> None:
    gpu = GpuFacts(name="NVIDIA L4", sm=89, memory_gib=22.5, driver="580.1")
    here = dataclasses.replace(FACTS, gpus=(gpu,), gpu_note="")
    plan = plan_of("hardware=l4", facts=here)
    assert plan.memory.capacity_gib == plan.spec.hardware.memory_gib
    assert {ceiling.bound_by for ceiling in plan.ceilings} == {"weights and one sequence", "bandwidth"}
    assert plan.roof.tflops == plan.spec.hardware.tflops_bf16
    anything = plan_of("hardware=l4", "evaluation.precision=any", facts=here)
    assert anything.roof.tflops == max(plan.spec.hardware.tops_int8, plan.spec.hardware.tops_int4)


def test_more_threads_than_cpus_are_refused() -> None:
    assert "hardware.engine_threads: 9 is above the 4 CPUs here" in refused("hardware.engine_threads=9")


def test_a_model_that_does_not_fit_is_refused_with_the_parts() -> None:
    text = refused("model.num_parameters=20000000000")
    assert "the model does not fit: one rank needs 38.0 GiB, its capacity is 15.6 GiB" in text
    assert "weights 37.3, KV cache 0.2 (shared prefixes 0.0), state 0.0, workspace 0.5 GiB" in text


def test_a_goal_beyond_its_roofline_is_unreachable() -> None:
    text = refused("hardware.bandwidth_gb_s=15", "goals=[{metric: output_throughput, load: c1, min_per_s: 56}]")
    assert "goals[0]: output_throughput 56 tok/s is unreachable: ceiling 55.15 tok/s (bandwidth, load c1)" in text
    plan_of("hardware.bandwidth_gb_s=15", "goals=[{metric: output_throughput, load: c1, min_per_s: 55}]")


def test_layout_and_declared_figures_are_part_of_the_plan() -> None:
    figure = "+baseline.transformers.declared=[{metric: output_throughput, load: c8, value: 20, source: a note}]"
    assert plan_of(figure).plan_id != plan_of().plan_id
    assert plan_of("parallelism.tensor=1").plan_id == plan_of().plan_id, "auto and its result are the same plan"


def test_files_of_a_target_and_a_trace_are_part_of_the_plan_by_content(tmp_path: Path) -> None:
    def trace_plan(folder: str, tokens: int) -> Plan:
        path = tmp_path / folder / "requests.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            "".join(f'{{"arrival_s": {at}, "prompt_tokens": {tokens}, "output_tokens": 64}}\n' for at in (0, 1))
        )
        return plan_of("workload=trace", f"workload.trace={path}", "goals=[{metric: peak_memory, max_gib: 4}]")

    first = trace_plan("a", 100)
    assert trace_plan("b", 100).plan_id == first.plan_id, "where it lies does not matter"
    assert trace_plan("a", 101).plan_id != first.plan_id
    # two requests within a second: one a second
    assert [c.value for c in first.ceilings if (c.metric, c.load) == ("request_throughput", "x1")] == [1.0]


def test_any_precision_lowers_the_floor() -> None:
    goal = "goals=[{metric: output_throughput, load: c1, min_per_s: 200}]"
    assert "unreachable" in refused("hardware.bandwidth_gb_s=15", goal)
    plan_of("hardware.bandwidth_gb_s=15", goal, "evaluation.precision=any")


def test_weights_that_fit_the_caches_have_no_bandwidth_ceiling() -> None:
    assert {ceiling.metric for ceiling in plan_of(target="tiny_cpu").ceilings} == {"peak_memory"}
