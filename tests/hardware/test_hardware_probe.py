"""The probe: on this machine, and on what other machines say."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from vibeserve.hardware import HardwareFacts, identity, mismatch, probe
from vibeserve.hardware.facts import GpuFacts
from vibeserve.hardware.probe import _cpu, _governors, _selected, probe_gpus
from vibeserve.spec import Hardware

FACTS = HardwareFacts(
    system="Linux",
    kernel="6.1",
    cpu_model="Some CPU",
    cpu_flags=("avx2", "avx512f", "vmx"),
    cpus=(0, 1, 2, 3),
    memory_gib=15.6,
    gpu_note="no NVIDIA driver on this machine",
)
L4 = GpuFacts(name="NVIDIA L4", sm=89, memory_gib=22.2, driver="580.65.06")


def test_this_machine_has_cpus_memory_and_a_word_about_gpus() -> None:
    facts = probe()
    assert facts.num_cpus >= 1
    assert facts.memory_gib > 0.1
    assert facts.cpu_model
    assert bool(facts.gpus) != bool(facts.gpu_note)


def test_without_a_driver_there_are_no_gpus_and_it_says_so() -> None:
    gpus, note = probe_gpus()
    if gpus:
        pytest.skip("this machine has a GPU")
    assert "driver" in note or "cuda-python" in note or "CUDA" in note


def test_cpuinfo_of_x86_and_arm() -> None:
    assert _cpu("model name\t: Xeon\nflags\t\t: sse avx2\n\nmodel name\t: Other\n") == ("Xeon", ("avx2", "sse"))
    model, flags = _cpu("processor\t: 0\nFeatures\t: asimd i8mm\n")
    assert model
    assert flags == ("asimd", "i8mm")


def test_the_selected_word_of_a_kernel_switch() -> None:
    assert _selected("always [madvise] never\n") == "madvise"
    assert _selected("") == ""


def test_the_governors_of_the_cpus_that_may_be_used(tmp_path: Path) -> None:
    for cpu, governor in enumerate(("performance", "powersave", "performance")):
        (tmp_path / f"cpu{cpu}/cpufreq").mkdir(parents=True)
        (tmp_path / f"cpu{cpu}/cpufreq/scaling_governor").write_text(f"{governor}\n")
    assert _governors(tmp_path, (0, 2)) == "performance"
    assert _governors(tmp_path, (0, 1)) == "performance, powersave"
    assert _governors(tmp_path, (7,)) == ""


def test_a_lower_limit_of_the_control_group_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"/sys/fs/cgroup/memory.max": f"{1 << 30}\n"}
    monkeypatch.setattr(sys.modules["vibeserve.hardware.probe"], "_read", lambda path: texts.get(path, ""))
    assert probe().memory_gib == 1.0


def test_identity_holds_what_changes_results_and_nothing_measured() -> None:
    first = identity(FACTS)
    assert first["cpu_flags"] == ["avx2", "avx512f"]
    assert first["memory_gib"] == 16
    assert identity(dataclasses.replace(FACTS, bandwidth_gb_s=15.0, kernel="6.9")) == first
    assert identity(dataclasses.replace(FACTS, cpus=(0, 1))) != first
    with_gpu = dataclasses.replace(FACTS, gpus=(L4,))
    assert identity(with_gpu)["gpus"] == [{"name": "NVIDIA L4", "sm": 89, "driver": "580"}]


def test_a_cpu_target_runs_on_every_machine_with_the_memory() -> None:
    assert mismatch(Hardware(name="cpu"), FACTS) is None
    assert mismatch(Hardware(name="big", memory_gib=64), FACTS) == ("needs 64 GiB of memory, this machine has 15.6")


def test_a_gpu_target_needs_that_gpu() -> None:
    declared = Hardware(name="l4", kind="cuda", sm=89, memory_gib=22.5)
    assert mismatch(declared, FACTS) == "needs 1 x l4 (sm 89); no NVIDIA driver on this machine"
    here = dataclasses.replace(FACTS, gpus=(L4,), gpu_note="")
    assert mismatch(declared, here) is None
    two = dataclasses.replace(declared, count=2)
    assert mismatch(two, here) == "needs 2 x l4 (sm 89); this machine has NVIDIA L4 (sm 89)"
    other = dataclasses.replace(declared, sm=90, name="h100")
    assert "needs 1 x h100 (sm 90)" in str(mismatch(other, here))
    assert mismatch(Hardware(name="m3", kind="mps"), here) == "needs Apple silicon, this is Linux"


def test_probing_starts_no_torch() -> None:
    code = "import sys; from vibeserve.hardware import probe; probe(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=Path.cwd()).returncode == 0
