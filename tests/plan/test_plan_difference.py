"""What differs between two plans, fact by fact; and a resolved spec as it was declared."""

from __future__ import annotations

from dataclasses import replace

from plan_samples import CPU, LLAMA_8B, chat

from vibeserve.plan.compile import resolve
from vibeserve.plan.difference import ChangedFact, changes_of, spec_changes
from vibeserve.plan.unresolved import unresolved
from vibeserve.spec import Hardware, Model, ModelSource, Parallelism, Seed, Spec, TargetInfo

CONFIG = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 1024,
}  # fmt: skip
SEEDED = Model(id="tiny", architecture="llama", source=ModelSource(config=CONFIG))


def spec_of(**changes: object) -> Spec:
    fields: dict[str, object] = {
        "target": TargetInfo(name="t"), "model": LLAMA_8B, "hardware": CPU, "workload": chat(),
    }  # fmt: skip
    return Spec(**(fields | changes))  # type: ignore[arg-type]


def test_a_changed_key_is_named_with_both_values() -> None:
    after = spec_of(model=replace(LLAMA_8B, revision="b" * 40))
    (change,) = spec_changes(spec_of(), after)
    assert change == ChangedFact(name="model.revision", before="", after="b" * 40)
    assert str(change) == f'model.revision: "" -> {"b" * 40}'


def test_where_it_runs_and_from_what_is_no_difference() -> None:
    after = spec_of(out_dir="elsewhere", seed=Seed(kind="path", path="/x"), target=TargetInfo(name="t", dir="/y"))
    assert spec_changes(spec_of(), after) == ()


def test_entries_that_come_and_go_are_differences() -> None:
    fewer = spec_of()
    fewer.workload = chat(loads={"c8": fewer.workload.loads["c8"]})
    names = {change.name for change in spec_changes(spec_of(), fewer)}
    assert "workload.loads.c1.concurrency" in names
    (change,) = (each for each in spec_changes(spec_of(), fewer) if each.name == "workload.loads.c1.concurrency")
    assert str(change) == "workload.loads.c1.concurrency: 1 -> (none)"


def test_facts_of_the_machine_are_compared_as_json() -> None:
    before, after = {"cpu_flags": ("avx2",), "num_cpus": 2}, {"cpu_flags": ["avx2"], "num_cpus": 4}
    assert changes_of("machine", before, after) == (ChangedFact(name="machine.num_cpus", before=2, after=4),)


def test_derived_sizes_follow_the_configuration_again() -> None:
    resolved, _, _ = resolve(spec_of(model=SEEDED), here=None)
    assert resolved.model.num_layers == 2 and resolved.model.num_parameters > 0
    declared = unresolved(resolved, is_same_machine=True)
    assert declared.model == SEEDED
    deeper = replace(declared, model=replace(SEEDED, source=ModelSource(config={**CONFIG, "num_hidden_layers": 3})))
    assert resolve(deeper, here=None)[0].model.num_layers == 3


def test_another_machine_finds_its_own_cores() -> None:
    hardware = Hardware(name="cpu", engine_cpus="0", client_cpus="1", engine_threads=1)
    resolved = spec_of(hardware=hardware, parallelism=Parallelism(tensor=1, pipeline=1, replicas=1))
    assert unresolved(resolved, is_same_machine=True).hardware == hardware
    elsewhere = unresolved(resolved, is_same_machine=False)
    assert (elsewhere.hardware.engine_cpus, elsewhere.hardware.engine_threads) == ("auto", 0)
    assert elsewhere.parallelism == Parallelism()
