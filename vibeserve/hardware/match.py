"""Does a declared hardware exist on this machine?"""

from __future__ import annotations

from vibeserve.hardware.facts import HardwareFacts
from vibeserve.spec import Hardware


def mismatch(hardware: Hardware, facts: HardwareFacts) -> str | None:
    """Why `hardware` is not here, or None when it is."""
    if hardware.kind == "cpu":
        if hardware.memory_gib > facts.memory_gib:
            return f"needs {hardware.memory_gib:g} GiB of memory, this machine has {facts.memory_gib:.1f}"
        return None
    if hardware.kind == "cuda":
        return _cuda_mismatch(hardware, facts)
    return None if facts.system == "Darwin" else f"needs Apple silicon, this is {facts.system}"


def _cuda_mismatch(hardware: Hardware, facts: HardwareFacts) -> str | None:
    wanted = f"needs {hardware.count} x {hardware.name} (sm {hardware.sm})"
    if not facts.gpus:
        return f"{wanted}; {facts.gpu_note}"
    fitting = [gpu for gpu in facts.gpus if gpu.sm == hardware.sm and gpu.memory_gib >= 0.95 * hardware.memory_gib]
    if len(fitting) < hardware.count:
        return f"{wanted}; this machine has {', '.join(f'{gpu.name} (sm {gpu.sm})' for gpu in facts.gpus)}"
    return None
