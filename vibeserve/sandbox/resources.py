"""What of the machine a walled process tree may use, and the names of what it took too much of."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from vibeserve.spec import Hardware, Sandbox

GIB = 1 << 30
AUTO_MEMORY_SHARE = 0.9
"""of the machine's memory, for one tree: the rest is the controller's and the load generator's"""
_MEMORY_FILES = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_GPU_NODES = re.compile(
    r"nvidia\d+|nvidiactl|nvidia-uvm|nvidia-uvm-tools|nvidia-caps/nvidia-cap\d+|dri/renderD\d+|kfd|dxg"
)
"""below /dev: of CUDA's driver, of DRM's render nodes, of ROCm, of WSL"""


class Exceeded(Enum):
    """A limit that a tree ran into; the values are outcomes of `ServerError` and reason classes of refusals."""

    MEMORY = "out_of_memory"
    DISK = "out_of_disk"
    PROCESSES = "out_of_processes"


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Of one tree. Beyond memory and disk the whole tree is killed; beyond processes, forking fails."""

    max_processes: int = Sandbox.max_processes
    max_memory_gib: float = Sandbox.max_memory_gib
    """0 = `AUTO_MEMORY_SHARE` of the machine's"""
    max_disk_gib: float = Sandbox.max_disk_gib
    """written to disk: writable folders, temporary files, the log. Also the largest single file"""
    tmp_gib: float = 2.0
    """tier A: size of $TMPDIR and of /dev/shm each, which are memory"""
    devices: tuple[Path, ...] = ()
    """device nodes such as /dev/nvidia0"""

    @property
    def memory_bytes(self) -> int:
        return int((self.max_memory_gib or AUTO_MEMORY_SHARE * machine_memory_gib()) * GIB)

    @property
    def disk_bytes(self) -> int:
        return int(self.max_disk_gib * GIB)


DEFAULT_RESOURCES = Resources()


def resources_of(sandbox: Sandbox, *, hardware: Hardware) -> Resources:
    """What a spec lets its servers use: its limits, where this machine has so much, and the GPUs of a target for GPUs
    (a CPU target's servers get none)."""
    is_cpu = hardware.kind == "cpu"
    memory_gib = sandbox.max_memory_gib
    if memory_gib == 0 and is_cpu and hardware.memory_gib > 0:
        memory_gib = min(hardware.memory_gib * hardware.count, AUTO_MEMORY_SHARE * machine_memory_gib())
    return Resources(
        max_processes=sandbox.max_processes,
        max_memory_gib=memory_gib,
        max_disk_gib=sandbox.max_disk_gib,
        devices=() if is_cpu else gpu_devices(),
    )


def gpu_devices(root: Path = Path("/dev")) -> tuple[Path, ...]:
    """Device nodes of GPUs below `root`, those that are there."""
    found = [*root.glob("*"), *root.glob("nvidia-caps/*"), *root.glob("dri/*")]
    return tuple(sorted(path for path in found if _GPU_NODES.fullmatch(path.relative_to(root).as_posix())))


def machine_memory_gib() -> float:
    """Physical memory, or the limit of the control group that this machine's root is (a container), GiB."""
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for file in map(Path, _MEMORY_FILES):
        with contextlib.suppress(OSError, ValueError):  # not there, or `max`
            sizes.append(int(file.read_text(encoding="ascii")))
    return min(sizes) / GIB
