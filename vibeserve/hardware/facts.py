"""The frozen facts of a machine, and the part of them that identifies it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class GpuFacts:
    name: str
    sm: int
    """compute capability times ten"""
    memory_gib: float
    driver: str = ""
    """version of the kernel driver, empty when it could not be asked"""
    uuid: str = ""
    """names the very device, `GPU-...`; no part of the identity"""


@dataclass(frozen=True, kw_only=True)
class TorchFacts:
    version: str
    cpu_capability: str
    """the instruction set that torch's own kernels use, such as AVX512"""
    num_threads: int


@dataclass(frozen=True, kw_only=True)
class HardwareFacts:
    """What a probe saw. `identity` says which of it belongs to the plan's hash."""

    schema_version: int = 1
    system: str
    """Linux, Darwin"""
    kernel: str
    cpu_model: str
    cpu_flags: tuple[str, ...]
    """instruction set flags as the kernel names them, sorted"""
    cpus: tuple[int, ...]
    """logical CPUs that this process may run on"""
    memory_gib: float
    """physical memory, or the control group's limit when that is lower"""
    transparent_huge_pages: str = ""
    """always, madvise, never; empty where the kernel has none"""
    cpu_governor: str = ""
    """frequency governors of this process's CPUs, such as performance; empty where the kernel has none to set"""
    gpus: tuple[GpuFacts, ...] = ()
    gpu_note: str = ""
    """why there are no GPUs"""
    bandwidth_gb_s: float = 0.0
    """measured read bandwidth of the engine's cores; 0 = not measured. Never part of the identity"""
    is_bandwidth_disturbed: bool = False
    """other work waited for cores while it was measured: the true rate may be several times as high"""

    @property
    def num_cpus(self) -> int:
        return len(self.cpus)


# flags that change which kernels run; the rest (virtualisation, mitigations) varies with the hypervisor's version
COMPUTE_FLAGS = (
    "amx_bf16",
    "amx_fp16",
    "amx_int8",
    "amx_tile",
    "asimd",
    "asimddp",
    "avx",
    "avx2",
    "avx512_bf16",
    "avx512_fp16",
    "avx512_vnni",
    "avx512bw",
    "avx512dq",
    "avx512f",
    "avx512vl",
    "avx_vnni",
    "bf16",
    "f16c",
    "fma",
    "i8mm",
    "sse4_2",
    "sve",
    "sve2",
)


def identity(facts: HardwareFacts) -> dict[str, Any]:
    """What makes two machines the same for a plan: CPU model, instruction flags, cores, memory in whole GiB; GPUs by
    name, sm and driver major. Measured numbers are not in it."""
    return {
        "cpu_model": facts.cpu_model,
        "cpu_flags": [flag for flag in COMPUTE_FLAGS if flag in facts.cpu_flags],
        "num_cpus": facts.num_cpus,
        "memory_gib": round(facts.memory_gib),
        "gpus": [{"name": gpu.name, "sm": gpu.sm, "driver": gpu.driver.split(".")[0]} for gpu in facts.gpus],
    }
