"""The check of a device: what it serves where, and the whole of it on this CPU."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from plan_samples import FACTS

from benchmarks.device_check.command import AssemblyRow, DeviceCheck, LoadRow, told
from benchmarks.device_check.shapes import ASSEMBLIES, shape_for
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.hardware.facts import GpuFacts
from vibeserve.plan.unmeasured import compile_unmeasured
from vibeserve.skills import load_skills, resolve

ROOT = Path(__file__).resolve().parents[2]


def test_every_shape_composes_and_every_assembly_resolves() -> None:
    on_gpu = replace(FACTS, gpus=(GpuFacts(name="NVIDIA H200", sm=90, memory_gib=139.8),))
    for facts in (replace(FACTS, gpus=()), on_gpu):
        shape = shape_for(facts, layers=32)
        spec = shape.spec()
        assert set(spec.workload.loads) == {"c1", "c8", "c32"}
    assert (shape.device, spec.hardware.name, spec.hardware.kind) == ("cuda", "h200", "cuda")
    assert spec.model.source.config["num_hidden_layers"] == 32
    plan = compile_unmeasured(spec, facts=on_gpu)
    ceilings = {each.load: each.value for each in plan.ceilings if each.metric == "output_throughput"}
    # 14.1 GB at 4.8 TB/s, once a step
    assert ceilings["c1"] == pytest.approx(4800 / 14.1, rel=0.05)
    assert ceilings["c1"] < ceilings["c8"] < ceilings["c32"]
    assert plan.memory.total_gib > plan.memory.weights_gib > 13
    skills = load_skills(data_dir("skills"))
    for names in ASSEMBLIES.values():
        assert {skill.name for skill in resolve(names, skills)} >= set(names)


def test_a_gpu_of_unknown_bandwidth_is_refused() -> None:
    facts = replace(FACTS, gpus=(GpuFacts(name="NVIDIA T4", sm=75, memory_gib=15.0),))
    with pytest.raises(SpecError, match="device_check: no file of conf/hardware is about 'NVIDIA T4'\n  known: H100"):
        shape_for(facts, layers=2)


def test_what_is_told() -> None:
    row = AssemblyRow(
        assembly="eager", components=("cuda-decoder",), accepted=True, refusals=(), stages=("replies",), num_replies=24,
        loads=(LoadRow(load="c1", output_tokens_per_s=120.5, ceiling_tokens_per_s=241.0, roofline_share=0.5),),
        peak_memory_gib=18.0, forecast_gib=15.0, is_memory_within=False, seconds=61.0,
    )  # fmt: skip
    refused = replace(row, assembly="graphs", accepted=False, refusals=("probe/prediction: no",), loads=())
    done = DeviceCheck(
        device="cuda", gpu="NVIDIA H200", driver="570", sandbox_tier="A", device_nodes=("/dev/nvidia0",), model="shape",
        num_parameters=7_050_000_000, bandwidth_gb_s=4800.0, rows=(row, replace(refused, peak_memory_gib=None)),
        not_run=("paged: the time was over",),
    )  # fmt: skip
    assert told(done).splitlines() == [
        "shape (7.05 B parameters) on NVIDIA H200, wall A",
        "  devices behind the wall: /dev/nvidia0",
        "eager: accepted, 24 replies judged, 61 s",
        "  c1: 120.5 tok/s, 50% of the roofline",
        "  18.00 GiB at the peak, 15.00 forecast: NOT within 10%",
        "graphs: REFUSED, 24 replies judged, 61 s",
        "  probe/prediction: no",
        "not run: paged: the time was over",
    ]


def test_the_script_needs_a_folder() -> None:
    finished = subprocess.run([ROOT / "benchmarks/device_check.sh"], capture_output=True, text=True, check=False)
    assert finished.returncode != 0
    assert "usage: benchmarks/device_check.sh OUTDIR" in finished.stderr


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_last_assembly_passes_the_gates_here(tmp_path: Path) -> None:
    script = [str(ROOT / "benchmarks/device_check.sh"), str(tmp_path), "--only", "paged"]
    finished = subprocess.run(script, capture_output=True, text=True, timeout=280, check=False)
    assert finished.returncode == 0, finished.stderr[-2000:]
    done = json.loads((tmp_path / "device_check.json").read_text())
    (row,) = done["rows"]
    assert (done["device"], done["device_nodes"], row["assembly"], row["refusals"]) == ("cpu", [], "paged", [])
    assert row["accepted"] is True
    assert {"replies", "probe"} <= set(row["stages"])
    assert [load["load"] for load in row["loads"]] == ["c1", "c8", "c32"]
    assert all(load["output_tokens_per_s"] > 0 and load["roofline_share"] is None for load in row["loads"])
    assert row["peak_memory_gib"] > 0 and row["forecast_gib"] > 0
