"""What a server's processes hold now, by /proc. `vibeserve.sandbox.tree.memory_gib` is the highest they ever held."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_PROC = Path("/proc")
_FILES = (("smaps_rollup", "Pss"), ("status", "VmRSS"))
"""the second where the first is not ours to read: PSS counts a shared page once over its sharers"""


def resident_gib(pids: Sequence[int]) -> float:
    """Resident memory of the processes now, GiB; those that have ended count nothing."""
    return sum(_kib(pid) for pid in pids) / 2**20


def _kib(pid: int) -> int:
    for file, key in _FILES:
        try:
            lines = (_PROC / str(pid) / file).read_text(encoding="ascii", errors="replace").splitlines()
        except PermissionError:
            continue
        except (FileNotFoundError, ProcessLookupError):
            return 0
        return next((int(line.split()[1]) for line in lines if line.startswith(f"{key}:")), 0)
    return 0
