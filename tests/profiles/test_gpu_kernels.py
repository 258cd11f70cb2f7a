"""Command lines and readers for devices, on small recorded texts: no device is needed, and none was used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vibeserve.core.nouns import ActivationState
from vibeserve.profiles import check_activation, observe
from vibeserve.profiles.gpu import (
    Kernel,
    kernel_profile,
    launch_line,
    parse_kernel_sums,
    read_torch_trace,
    start_line,
    stats_line,
    stop_line,
)

STATS = """\
Generating SQLite file report.sqlite from report.nsys-rep
Processing [report.sqlite] with [cuda_gpu_kern_sum.py]...

Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name
62.5,1000000000,400,2500000.0,2500000.0,2400000,2600000,1000.0,"void cutlass::Kernel2<cutlass_80_wmma_bf16_gemm>(T1::Params, int)"
25.0,400000000,400,1000000.0,1000000.0,900000,1100000,1000.0,flash_fwd_splitkv_kernel
12.5,200000000,800,250000.0,250000.0,200000,300000,1000.0,my_fused_step
"""  # noqa: E501
SAME = observe([100], [97], metric="output_throughput")


def test_a_server_is_launched_and_slices_of_it_are_recorded() -> None:
    launched = launch_line("/usr/bin/nsys", ["python", "-m", "runtime"])
    assert launched[:2] == ["/usr/bin/nsys", "launch"] and launched[-3:] == ["python", "-m", "runtime"]
    assert "--session-new=vibeserve" in launched
    assert start_line("nsys", output=Path("/run/s1"))[:4] == [
        "nsys",
        "start",
        "--session=vibeserve",
        "--output=/run/s1",
    ]
    assert stop_line("nsys") == ["nsys", "stop", "--session=vibeserve"]
    assert stats_line("nsys", report=Path("/run/s1.nsys-rep"))[-1] == "/run/s1.nsys-rep"


def test_sums_of_kernels_become_a_ranked_list() -> None:
    kernels = parse_kernel_sums(STATS)
    assert [(kernel.calls, kernel.seconds) for kernel in kernels] == [(400, 1.0), (400, 0.4), (800, 0.2)]
    profile = kernel_profile(
        kernels, seconds=2.0, tool="nsys", load="c8", observed=SAME, unit="output token", unit_s=0.1
    )
    assert profile.is_timed and not profile.is_own_word
    rows = [(row.name, row.share, row.calls, row.amdahl_ceiling) for row in profile.bottlenecks]
    assert rows == [("matmul", 0.5, 400, 2.0), ("other kernels", 0.3, 1200, 1.429)]
    assert profile.bottlenecks[0].seconds_each == pytest.approx(0.05)
    assert [each.share for each in profile.structure.symbols] == [0.625, 0.25, 0.125]


def test_beyond_the_observer_rule_kernels_are_facts_of_structure() -> None:
    slow = observe([100], [50], metric="output_throughput")
    profile = kernel_profile(parse_kernel_sums(STATS), seconds=2.0, tool="nsys", load="c8", observed=slow)
    assert not profile.is_timed and profile.bottlenecks == () and len(profile.structure.symbols) == 3


@pytest.mark.parametrize("text", ["", "SKIPPED: report.sqlite does not contain CUDA kernel data.\n", "Name,x\n"])
def test_what_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="printed no table with the columns Name, Instances"):
        parse_kernel_sums(text)


def trace(path: Path, events: object) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return path


def test_a_trace_of_torch_is_summed_by_kernel_and_is_the_candidates_word(tmp_path: Path) -> None:
    def event(name: str, duration_us: object, *, category: str = "kernel", phase: str = "X") -> dict[str, object]:
        return {"ph": phase, "cat": category, "name": name, "dur": duration_us}

    events = [
        event("sm80_gemm", 250.0), event("sm80_gemm", 750), event("Memcpy HtoD", 100, category="gpu_memcpy"),
        event("aten::mm", 9e9, category="cpu_op"), event("broken", "long"), event("x", 1, phase="s"), 7,
    ]  # fmt: skip
    kernels = read_torch_trace(trace(tmp_path / "trace.json", events))
    assert kernels == [
        Kernel(name="sm80_gemm", calls=2, seconds=0.001), Kernel(name="Memcpy HtoD", calls=1, seconds=0.0001)
    ]  # fmt: skip
    profile = kernel_profile(kernels, seconds=0.002, tool="torch", load="c8", observed=SAME)
    assert profile.is_own_word and [row.name for row in profile.bottlenecks] == ["matmul", "copy"]
    (tmp_path / "runtime").mkdir()
    found = check_activation("`sm80_gemm`", profile=profile, workspace=tmp_path)
    assert found.state is ActivationState.NOT_CHECKABLE


@pytest.mark.parametrize("text", ["[]", '{"traceEvents": 5}', "{}"])
def test_what_is_no_trace_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "trace.json").write_text(text)
    with pytest.raises(ValueError, match="no 'traceEvents'"):
        read_torch_trace(tmp_path / "trace.json")


def test_a_device_on_which_nothing_ran_says_so_and_shares_stay_shares() -> None:
    idle = kernel_profile([], seconds=1.0, tool="nsys", load="c8", observed=SAME)
    assert idle.bottlenecks == () and idle.notes == ("no kernel ran on the device",)
    streams = kernel_profile(
        [Kernel(name="gemm", calls=1, seconds=3.0)], seconds=2.0, tool="nsys", load="c8", observed=SAME
    )
    assert (streams.bottlenecks[0].share, streams.bottlenecks[0].amdahl_ceiling) == (1.0, None)
    with pytest.raises(ValueError, match="longer than nothing"):
        kernel_profile([], seconds=0.0, tool="nsys", load="c8", observed=SAME)
    with pytest.raises(ValueError, match="must be nsys or torch, not 'spans'"):
        kernel_profile([], seconds=1.0, tool="spans", load="c8", observed=SAME)
