"""Kernels of a CUDA device: Nsight Systems around a server, or a trace that `torch.profiler` left.

Neither can look into a process that runs already: `nsys launch` starts the server, `nsys start` and `nsys stop` bound a
slice of it, so control slices of the same server are at hand for the observer rule. A trace of `torch.profiler` is
written inside the server's process, where the candidate could write it, too: it tells where time goes and is no
evidence. Command lines follow the Nsight Systems user guide (CLI, 2024 and later); the trace is the Chrome trace event
format that `torch.profiler.profile.export_chrome_trace` writes.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vibeserve.profiles.documents import NSYS, TORCH, Bottleneck, Frame, NativeSymbol, Observed, Profile, Structure
from vibeserve.profiles.observer import under_rule
from vibeserve.profiles.ranking import MIN_SHARE, amdahl_ceiling
from vibeserve.profiles.seams import kind_of

SESSION = "vibeserve"
INSTALL = "install Nsight Systems (`nsys`, of the CUDA toolkit) on the machine that serves"
KERNEL_REPORT = "cuda_gpu_kern_sum"
NAME, CALLS, TOTAL_NS = "Name", "Instances", "Total Time (ns)"
KERNEL_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
MAX_SYMBOLS, MAX_FRAMES = 40, 3
MAX_TRACE_BYTES = 512 << 20
OTHER = "other kernels"
DEVICE = "gpu"


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """All runs of one kernel."""

    name: str
    calls: int
    seconds: float


def launch_line(program: str, command: Sequence[str]) -> list[str]:
    """The server under nsys, which records nothing until it is told to; children of it are followed."""
    return [
        program, "launch", f"--session-new={SESSION}", "--trace=cuda,nvtx,osrt", "--trace-fork-before-exec=true",
        "--cuda-graph-trace=node", *command,
    ]  # fmt: skip


def start_line(program: str, *, output: Path) -> list[str]:
    """Begin a slice; its report goes to `output` with the suffix `.nsys-rep`."""
    return [
        program, "start", f"--session={SESSION}", f"--output={output}", "--force-overwrite=true", "--sample=none",
        "--cpuctxsw=none", "--stats=false",
    ]  # fmt: skip


def stop_line(program: str) -> list[str]:
    """End the slice and write its report. The server goes on."""
    return [program, "stop", f"--session={SESSION}"]


def stats_line(program: str, *, report: Path) -> list[str]:
    """Sums by kernel as CSV on standard output."""
    return [program, "stats", f"--report={KERNEL_REPORT}", "--format=csv", "--force-export=true", str(report)]


def parse_kernel_sums(text: str) -> list[Kernel]:
    """The CSV of `nsys stats`. ValueError where it holds no such table; an empty one means that no kernel ran."""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if NAME in line and TOTAL_NS in line), None)
    if start is None:
        raise ValueError(f"nsys stats printed no table with the columns {NAME}, {CALLS}, {TOTAL_NS}")
    rows = csv.DictReader(io.StringIO("\n".join(lines[start:])))
    found = []
    for row in rows:
        name, calls, total_ns = row.get(NAME), row.get(CALLS), row.get(TOTAL_NS)
        if name and calls and total_ns:
            found.append(Kernel(name=name, calls=_integer(calls), seconds=_integer(total_ns) / 1e9))
    return found


def _integer(text: str) -> int:
    return int(float(text.replace(",", "")))


def read_torch_trace(path: Path) -> list[Kernel]:
    """Kernels and copies of a Chrome trace, summed by name. ValueError for what is no trace."""
    if path.stat().st_size > MAX_TRACE_BYTES:
        raise ValueError(f"{path}: a trace of more than {MAX_TRACE_BYTES >> 20} MiB is not read; record less time")
    data = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    events = data.get("traceEvents") if isinstance(data, dict) else None
    if not isinstance(events, list):
        raise ValueError(f"{path}: no 'traceEvents'; is it a file of torch.profiler's export_chrome_trace?")
    return _summed(event for event in events if isinstance(event, dict) and _is_kernel(event))


def _is_kernel(event: Mapping[str, Any]) -> bool:
    has_time = isinstance(event.get("dur"), int | float) and isinstance(event.get("name"), str)
    return has_time and event.get("ph") == "X" and event.get("cat") in KERNEL_CATEGORIES


def _summed(events: Iterable[Mapping[str, Any]]) -> list[Kernel]:
    calls: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for event in events:
        name = event["name"]
        calls[name] = calls.get(name, 0) + 1
        seconds[name] = seconds.get(name, 0.0) + event["dur"] / 1e6
    return [Kernel(name=name, calls=calls[name], seconds=seconds[name]) for name in calls]


def kernel_profile(
    kernels: Sequence[Kernel], *, seconds: float, tool: str, load: str, observed: Observed | None,
    unit: str = "", unit_s: float | None = None,
) -> Profile:  # fmt: skip
    """The profile of a slice of `seconds`: one row for each kind of kernel, by its share of wall time on the device.

    `tool`: nsys, or torch, whose trace is the candidate's word. ValueError for a slice without length.
    """
    if tool not in (NSYS, TORCH):
        raise ValueError(f"tool must be {NSYS} or {TORCH}, not '{tool}'")
    if seconds <= 0:
        raise ValueError("a slice must be longer than nothing")
    total_s = sum(kernel.seconds for kernel in kernels)
    ordered = sorted(kernels, key=lambda kernel: (-kernel.seconds, kernel.name))
    symbols = tuple(
        NativeSymbol(
            name=kernel.name, library=DEVICE, kind=kind_of(kernel.name),
            share=round(kernel.seconds / total_s, 4) if total_s else 0.0,
        )
        for kernel in ordered[:MAX_SYMBOLS]
    )  # fmt: skip
    profile = Profile(
        tool=tool, load=load, seconds=seconds, unit=unit, unit_s=unit_s, is_own_word=tool == TORCH,
        bottlenecks=_rows(ordered, seconds=seconds, unit_s=unit_s), structure=Structure(symbols=symbols),
        notes=() if kernels else ("no kernel ran on the device",),
    )  # fmt: skip
    return under_rule(profile, observed)


def _rows(kernels: Sequence[Kernel], *, seconds: float, unit_s: float | None) -> tuple[Bottleneck, ...]:
    by_kind: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        by_kind.setdefault(kind_of(kernel.name) or OTHER, []).append(kernel)
    rows = []
    for kind, members in by_kind.items():
        # kernels on several streams may run at once: their sum may be longer than the slice
        share = min(1.0, sum(kernel.seconds for kernel in members) / seconds)
        if share >= MIN_SHARE:
            rows.append(
                Bottleneck(
                    name=kind, share=round(share, 4), thread=DEVICE, amdahl_ceiling=amdahl_ceiling(share),
                    seconds_each=share * unit_s if unit_s else None, calls=sum(kernel.calls for kernel in members),
                    frames=tuple(
                        Frame(name=kernel.name, share=round(kernel.seconds / seconds, 4))
                        for kernel in members[:MAX_FRAMES]
                    ),
                )
            )  # fmt: skip
    return tuple(sorted(rows, key=lambda row: (-row.share, row.name)))
