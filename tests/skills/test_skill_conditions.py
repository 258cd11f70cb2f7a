"""Where a component applies."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from vibeserve.skills import Card, Conditions, TargetFacts, applicable, target_facts
from vibeserve.spec import Load, Spec, Workload

FACTS = TargetFacts(
    architecture="llama",
    modality="text",
    hardware="cpu",
    cpu_flags=frozenset({"avx512f", "avx512_vnni"}),
    precision="same_bytes",
    reuse="none",
)


def reason(facts: TargetFacts = FACTS, **conditions: Any) -> str | None:
    card = Card(name="one", files={"assets/linear.py": "runtime/linear.py"}, conditions=Conditions(**conditions))
    return applicable(card, facts=facts)


def test_no_condition_applies_everywhere() -> None:
    assert reason() is None


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"architectures": ("qwen3", "olmo")}, "architecture 'llama' is not one of qwen3, olmo"),
        ({"modalities": ("speech",)}, "modality 'text' is not one of speech"),
        ({"hardware": ("cuda",)}, "hardware 'cpu' is not one of cuda"),
        ({"precision": ("any",)}, "precision 'same_bytes' is not one of any"),
        ({"reuse": ("prefix",)}, "declared reuse 'none' is not one of prefix"),
        ({"ranks": ("several",)}, "number of ranks 'one' is not one of several"),
        ({"prediction": ("edits", "exact")}, "the clients' prediction 'none' is not one of edits, exact"),
        ({"cpu_flags_all": ("avx512f", "amx_bf16")}, "the CPU lacks amx_bf16"),
        ({"cpu_flags_any": ("amx_bf16", "avx512_bf16")}, "the CPU has none of amx_bf16, avx512_bf16"),
    ],
)
def test_conditions_that_do_not_hold(conditions: dict[str, Any], expected: str) -> None:
    assert reason(**conditions) == expected


def test_conditions_that_hold() -> None:
    assert reason(architectures=("llama",), cpu_flags_any=("amx_bf16", "avx512_vnni"), hardware=("cpu",)) is None
    assert reason(replace(FACTS, reuse="prefix"), reuse=("prefix",)) is None


def test_what_has_not_run_on_its_hardware_is_only_taken_where_that_is_allowed() -> None:
    card = Card(name="one", files={"assets/linear.py": "runtime/linear.py"}, status="unproven")
    assert applicable(card, facts=FACTS) == (
        "it has not run on such hardware yet (status unproven); search.allow_unproven=true admits it"
    )
    spec = Spec()
    spec.search.allow_unproven = True
    assert applicable(card, facts=target_facts(spec, cpu_flags=[])) is None


def test_facts_come_from_the_spec() -> None:
    spec = Spec()
    spec.model.architecture, spec.hardware.kind, spec.workload.kind = "llama", "cpu", "chat"
    facts = target_facts(spec, cpu_flags=["avx512f", "avx512_vnni"])
    assert facts == replace(FACTS, workload="chat")


def test_a_component_for_one_kind_of_workload_fits_no_other() -> None:
    told = "workload 'chat' is not one of constrained_json"
    assert reason(replace(FACTS, workload="chat"), workloads=("constrained_json",)) == told
    assert reason(replace(FACTS, workload="constrained_json"), workloads=("constrained_json",)) is None


def test_the_prediction_is_that_of_the_headline_load() -> None:
    spec = Spec()
    spec.workload = Workload(kind="code_edit", prediction="edits", headline_load="c1")
    spec.workload.loads = {"c1": Load(concurrency=1, prediction="none"), "c2": Load(concurrency=2)}
    assert target_facts(spec, cpu_flags=[]).prediction == "none"
    spec.workload.headline_load = "c2"
    assert target_facts(spec, cpu_flags=[]).prediction == "edits"


def test_a_target_has_the_ranks_that_its_layout_declares() -> None:
    spec = Spec()
    assert target_facts(spec, cpu_flags=None).ranks == "one"
    spec.parallelism.tensor = 2
    assert target_facts(spec, cpu_flags=None).ranks == "several"
    assert reason(replace(FACTS, ranks="several"), ranks=("one",)) == "number of ranks 'several' is not one of one"
