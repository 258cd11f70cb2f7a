"""Probe this machine: /proc and control groups, CUDA through cuda-python, torch on request."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

from vibeserve.hardware.facts import GpuFacts, HardwareFacts, TorchFacts

GIB = 1 << 30


def probe() -> HardwareFacts:
    """Facts of this machine in some tens of milliseconds; starts no torch and measures nothing."""
    cpu_model, cpu_flags = _cpu(_read("/proc/cpuinfo"))
    gpus, note = probe_gpus()
    return HardwareFacts(
        system=platform.system(),
        kernel=platform.release(),
        cpu_model=cpu_model,
        cpu_flags=cpu_flags,
        cpus=_cpus(),
        memory_gib=_memory_bytes() / GIB,
        transparent_huge_pages=_selected(_read("/sys/kernel/mm/transparent_hugepage/enabled")),
        cpu_governor=_governors(Path("/sys/devices/system/cpu"), _cpus()),
        gpus=gpus,
        gpu_note=note,
    )


def probe_torch() -> TorchFacts:
    """What torch would use on this machine. Imports torch, which takes seconds."""
    import torch

    return TorchFacts(
        version=torch.__version__,
        cpu_capability=torch.backends.cpu.get_cpu_capability(),
        num_threads=torch.get_num_threads(),
    )


def probe_gpus() -> tuple[tuple[GpuFacts, ...], str]:
    """GPUs that CUDA sees, and why there are none. `cudaGetDeviceCount` answers without a driver; nothing else does."""
    try:
        from cuda.bindings import runtime
    except ImportError:
        return (), "cuda-python is not installed (there is none for this platform)"
    status, count = runtime.cudaGetDeviceCount()
    if int(status) == int(runtime.cudaError_t.cudaErrorInsufficientDriver):
        return (), "no NVIDIA driver on this machine"
    if int(status) != 0 or not count:
        return (), f"CUDA reports no device ({status.name})"
    return tuple(_gpu(index) for index in range(count)), ""


def _gpu(index: int) -> GpuFacts:
    from cuda.bindings import runtime

    _, properties = runtime.cudaGetDeviceProperties(index)
    name = properties.name.decode() if isinstance(properties.name, bytes) else str(properties.name)
    return GpuFacts(
        name=name.rstrip("\0"),
        sm=properties.major * 10 + properties.minor,
        memory_gib=properties.totalGlobalMem / GIB,
        driver=_driver_version(),
        uuid=f"GPU-{UUID(bytes=properties.uuid.bytes)}",
    )


def _driver_version() -> str:
    # "NVRM version: NVIDIA UNIX ... Module  580.65.06  ..." since the first releases of the driver
    words = _read("/proc/driver/nvidia/version").split()
    return next((word for word in words if word.count(".") >= 1 and word.replace(".", "").isdigit()), "")


def _cpus() -> tuple[int, ...]:
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def _governors(root: Path, cpus: Sequence[int]) -> str:
    """`performance`, or `performance, powersave` where CPUs differ."""
    found = {_read(str(root / f"cpu{cpu}/cpufreq/scaling_governor")).strip() for cpu in cpus}
    return ", ".join(sorted(found - {""}))


def _cpu(cpuinfo: str) -> tuple[str, tuple[str, ...]]:
    """Model and sorted flags out of /proc/cpuinfo; ARM kernels say `Features` and often name no model."""
    fields: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, separator, value = line.partition(":")
        if separator:
            fields.setdefault(key.strip(), value.strip())
    flags = (fields.get("flags") or fields.get("Features") or "").split()
    return fields.get("model name") or platform.processor() or platform.machine(), tuple(sorted(set(flags)))


def _memory_bytes() -> int:
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [_read("/sys/fs/cgroup/memory.max"), _read("/sys/fs/cgroup/memory/memory.limit_in_bytes")]
    return min([physical, *(int(limit) for limit in map(str.strip, limits) if limit.isdigit())])


def _selected(text: str) -> str:
    """`madvise` out of `always [madvise] never`."""
    return text.partition("[")[2].partition("]")[0]


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
