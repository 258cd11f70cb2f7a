"""Targets that do not run from here: what the plan says, what the run refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from plan_samples import CPU, FACTS, H100, LLAMA_8B, OLMO, SMOLLM2, declared, shared, spec_of

from vibeserve.config.host_options import HostOption, configured_hosts
from vibeserve.errors import InfraError, SpecError
from vibeserve.hardware import GpuFacts, HardwareFacts
from vibeserve.plan import Plan, compile_plan, plan_document, refuse_obstacles
from vibeserve.spec import Hardware, Host, Modality, Model, ModelSource, Parallelism, Sandbox, SourceKind, Spec, Tier

GPU = GpuFacts(name="NVIDIA H100 80GB HBM3", sm=90, memory_gib=79.1, driver="580.65.06")
WITH_GPU = replace(FACTS, gpus=(GPU,), gpu_note="")
NO_WALL = Sandbox(tier=Tier.C, allow_none=True)
HUB = ModelSource(kind=SourceKind.hub)


@pytest.fixture(autouse=True)
def frozen_framework(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vibeserve.plan.digests.framework_digest", lambda: "f" * 64)


def target(model: Model = LLAMA_8B, hardware: Hardware = H100, **changes: object) -> Spec:
    fields: dict[str, object] = {"sandbox": NO_WALL, "parallelism": Parallelism(), **changes}
    return spec_of(replace(model, revision="0" * 40, source=HUB), hardware, **fields)  # type: ignore[arg-type]


def plan_of(spec: Spec, *, facts: HardwareFacts = FACTS, hosts: tuple[HostOption, ...] = ()) -> Plan:
    return compile_plan(spec, facts=facts, hosts=hosts)


def test_absent_hardware_is_planned_for_as_it_is_declared() -> None:
    plan = plan_of(target())
    assert plan.memory.capacity_gib == 79.6
    assert plan.roof.bandwidth_gb_s == 3350
    assert (plan.engine_cpus, plan.client_cpus, plan.threads) == ((), (), 0)
    assert plan.spec.hardware.engine_cpus == "auto"


def test_the_obstacle_names_what_is_missing_on_every_host_and_what_to_do() -> None:
    hosts = (
        HostOption(name="local", host=Host()),
        HostOption(name="lab", host=Host(kind="ssh", address="me@lab")),
        HostOption(name="broken", host=Host(), fault="conf/host/broken.yaml is no host; its keys: address, kind"),
    )
    plan = plan_of(target(), hosts=hosts)
    assert [obstacle.text for obstacle in plan.obstacles] == [
        "no configured host has 1 x h100 (sm 90): local: no NVIDIA driver on this machine; "
        "lab: kind ssh (me@lab), not asked; select it by host=lab; "
        "broken: conf/host/broken.yaml is no host; its keys: address, kind"
    ]
    assert plan.next_steps == (
        "to add a host, write conf/host/NAME.yaml in your repository and select it by host=NAME:",
        "  kind: ssh",
        "  address: user@machine",
        "what is built, served and measured is there then; agents and keys stay here (docs/hosts.md)",
        "twin: vibeserve +target=smollm2_cpu",
    )


def test_a_run_stops_with_the_same_text_as_infrastructure() -> None:
    plan = plan_of(target())
    with pytest.raises(InfraError) as caught:
        refuse_obstacles(plan)
    assert caught.value.exit_code == 5
    lines = ["target 'sample' cannot run from here; nothing was started or written", plan.obstacles[0].text]
    assert str(caught.value).splitlines() == [*lines, *plan.next_steps]


def test_other_gpus_fewer_gpus_and_other_systems_are_named() -> None:
    l4 = replace(FACTS, gpus=(GpuFacts(name="NVIDIA L4", sm=89, memory_gib=22.5),), gpu_note="")
    (other,) = plan_of(target(), facts=l4).obstacles
    assert other.text.endswith("local: this machine has NVIDIA L4 (sm 89)")
    fewer, _ = plan_of(target(hardware=replace(H100, count=2)), facts=WITH_GPU).obstacles
    assert (
        fewer.text == "no configured host has 2 x h100 (sm 90): local: this machine has NVIDIA H100 80GB HBM3 (sm 90)"
    )
    (apple,) = plan_of(target(hardware=Hardware(name="m3", kind="mps", memory_gib=24))).obstacles
    assert apple.text == "no configured host has 1 x m3 (Apple silicon): local: this is Linux"
    (memory,) = plan_of(target(SMOLLM2, Hardware(name="big", memory_gib=512))).obstacles
    assert memory.text == "no configured host has big with 512 GiB of memory: local: this machine has 15.6"


def test_hardware_that_is_here_has_no_obstacle_and_the_machines_identity() -> None:
    here, absent = plan_of(target(), facts=WITH_GPU), plan_of(target())
    assert here.obstacles == () and here.next_steps == ()
    refuse_obstacles(here)
    assert (here.engine_cpus, here.client_cpus, here.threads) == ((0, 1, 2), (3,), 3)
    assert here.digests["hardware"] != absent.digests["hardware"]
    assert here.plan_id != absent.plan_id


def test_the_identity_of_an_absent_device_comes_from_its_declaration() -> None:
    other_machine = replace(FACTS, cpu_model="Other CPU", cpus=(0, 1), memory_gib=512.0)
    assert plan_of(target(), facts=other_machine).plan_id == plan_of(target()).plan_id
    renamed = plan_of(target(hardware=replace(H100, name="h100_pcie")))
    assert renamed.digests["hardware"] != plan_of(target()).digests["hardware"]


def test_an_undeclared_memory_is_probed_or_unknown_and_never_the_hosts_own() -> None:
    undeclared = replace(H100, memory_gib=0.0)
    assert plan_of(target(hardware=undeclared), facts=WITH_GPU).memory.capacity_gib == 79.1
    absent = plan_of(target(hardware=undeclared))
    assert absent.memory.capacity_gib is None
    assert "hardware.memory_gib is not declared: whether the model fits is unknown" in absent.notes


def test_an_undeclared_bandwidth_of_absent_hardware_is_not_measured_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(cpus: tuple[int, ...]) -> float:
        raise AssertionError("measured")

    monkeypatch.setattr("vibeserve.plan.compile.measure_bandwidth_gb_s", measure)
    unmeasured = replace(FACTS, bandwidth_gb_s=0.0)
    plan = plan_of(target(SMOLLM2, Hardware(name="big", memory_gib=512)), facts=unmeasured)
    assert plan.roof.bandwidth_gb_s == 0
    assert "hardware.bandwidth_gb_s is unknown: reading bounds nothing" in plan.notes


def test_a_host_of_kind_ssh_is_planned_for_as_it_is_declared() -> None:
    spec = target(SMOLLM2, CPU, host=Host(kind="ssh", address="me@lab"))
    plan = plan_of(spec)
    (obstacle,) = plan.obstacles
    assert (obstacle.kind, obstacle.text) == (
        "host",
        "host.kind ssh (me@lab): planned as declared, because a plan asks no other machine; a run does, and vibeserve "
        "doctor says what is there",
    )
    assert plan.next_steps == ("twin: vibeserve +target=smollm2_cpu",)
    assert plan.engine_cpus == ()
    with pytest.raises(InfraError, match="planned as declared, because a plan asks no other machine"):
        refuse_obstacles(plan)


def test_a_host_that_was_asked_is_planned_for_as_it_is() -> None:
    spec = target(SMOLLM2, CPU, host=Host(kind="ssh", address="me@lab"))
    plan = compile_plan(spec, facts=FACTS, is_asked=True)
    assert plan.obstacles == () and plan.engine_cpus == (0, 1, 2)
    (obstacle,) = compile_plan(target(host=Host(kind="ssh", address="me@lab")), facts=FACTS, is_asked=True).obstacles
    assert obstacle.text == "host me@lab has no 1 x h100 (sm 90): no NVIDIA driver on this machine"


def test_an_engine_that_the_scaffold_needs_is_planned_for_and_refused_as_a_spec() -> None:
    plan = plan_of(target(replace(SMOLLM2, architecture="mamba"), CPU))
    text = (
        "allow_engines: the scaffold of architecture 'mamba' wraps transformers, which the target does not allow; "
        "add `allow_engines: [transformers]` to the target"
    )
    assert [(each.kind, each.text) for each in plan.obstacles] == [("scaffold", text)]
    assert plan.next_steps == ()
    with pytest.raises(SpecError) as caught:
        refuse_obstacles(plan)
    assert str(caught.value).splitlines() == [
        "target 'sample' does not run as it is declared",
        f"  {text}",
        "next: docs/contract.md",
    ]
    allowed = target(replace(SMOLLM2, architecture="mamba"), CPU, allow_engines=["transformers"])
    assert plan_of(allowed).obstacles == ()


def test_both_kinds_of_obstacle_are_told_and_the_hardware_decides() -> None:
    plan = plan_of(target(replace(OLMO, architecture="mamba2"), workload=shared()))
    kinds = [obstacle.kind for obstacle in plan.obstacles]
    assert (kinds[0], set(kinds[1:])) == ("host", {"scaffold"})
    with pytest.raises(InfraError, match="the scaffold of architecture 'mamba2' wraps transformers"):
        refuse_obstacles(plan)


def test_a_model_without_scaffold_is_told() -> None:
    model = replace(SMOLLM2, modality=Modality.image)
    texts = [obstacle.text for obstacle in plan_of(target(model, CPU)).obstacles]
    assert "model.architecture: the scaffold has no 'llama'; valid: janus, show_o2" in texts


def test_the_document_says_whether_it_runs_here() -> None:
    placement = plan_document(plan_of(target()))["placement"]
    assert placement["can_run_here"] is False
    assert [obstacle["kind"] for obstacle in placement["obstacles"]] == ["host"]
    assert placement["twin"] == "smollm2_cpu"
    assert plan_document(plan_of(target(), facts=WITH_GPU))["placement"]["can_run_here"] is True


def test_notes_say_what_is_unknown_or_idle() -> None:
    unlinked = replace(H100, count=2, interconnect_gb_s=0.0)
    notes = plan_of(target(hardware=unlinked, parallelism=Parallelism(tensor=2))).notes
    assert any(note.startswith("interconnect unknown: hardware.interconnect_gb_s is not declared") for note in notes)
    idle = plan_of(target(replace(LLAMA_8B, num_parameters=70_000_000_000), replace(H100, count=3))).notes
    assert "1 of 3 devices stay idle: no layout of this model uses them all" in idle
    without = plan_of(target(hardware=replace(H100, tflops_bf16=0.0))).notes
    assert "hardware.tflops_bf16 is not declared: arithmetic bounds nothing" in without
    unsized = plan_of(target(replace(LLAMA_8B, num_parameters=0, intermediate_size=0))).notes
    assert "model.num_parameters is not declared: weights and every floor are unknown" in unsized


def test_a_schedule_that_leaves_no_time_to_search_is_noted() -> None:
    spec = target(baseline={f"peer{number}": declared("tpot_p50", 0.05) for number in range(3)})
    spec.budget.wall_s = 60
    assert any(note.startswith("no time is left to search: budget.wall_s 60") for note in plan_of(spec).notes)


def test_hosts_are_the_packages_and_the_repositorys_own(tmp_path: Path) -> None:
    (tmp_path / "targets").mkdir()
    folder = tmp_path / "conf" / "host"
    folder.mkdir(parents=True)
    (folder / "lab.yaml").write_text("kind: ssh\naddress: me@lab\n")
    (folder / "odd.yaml").write_text("machine: lab\n")
    (folder / "torn.yaml").write_text("kind: [\n")
    (folder / "gpus.yaml").write_text("kind: slurm\noptions: [--partition=gpu]\nidle_s: 30\n")
    found = {option.name: option for option in configured_hosts(tmp_path)}
    assert found["local"].host == Host()
    assert found["lab"].host == Host(kind="ssh", address="me@lab")
    assert found["gpus"].host == Host(kind="slurm", options=["--partition=gpu"], idle_s=30.0)
    assert not {"ssh", "slurm", "docker"} & set(found), "the package's own name no machine"
    assert found["odd"].fault.endswith(
        "odd.yaml is no host; its keys: address, idle_s, image, kind, options, python, root, ssh_config, wait_s"
    )
    assert "torn.yaml cannot be read: " in found["torn"].fault
