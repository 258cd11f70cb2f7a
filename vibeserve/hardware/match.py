"""Does a declared hardware exist on this machine?"""

from __future__ import annotations

from vibeserve.hardware.facts import HardwareFacts
from vibeserve.spec import Hardware


def mismatch(hardware: Hardware, facts: HardwareFacts) -> str | None:
    """Why `hardware` is not here, or None when it is."""
    why_not = lack(hardware, facts)
    if why_not is None:
        return None
    if hardware.kind == "cuda":
        return f"needs {describe(hardware)}; {why_not}"
    what = f"{hardware.memory_gib:g} GiB of memory" if hardware.kind == "cpu" else "Apple silicon"
    return f"needs {what}, {why_not}"


def describe(hardware: Hardware) -> str:
    """What is declared, in a few words: `2 x h100 (sm 90)`."""
    if hardware.kind == "cpu":
        return f"{hardware.name} with {hardware.memory_gib:g} GiB of memory"
    kind = f"sm {hardware.sm}" if hardware.kind == "cuda" else "Apple silicon"
    return f"{hardware.count} x {hardware.name} ({kind})"


def lack(hardware: Hardware, facts: HardwareFacts) -> str | None:
    """What this machine is or has instead of `hardware`, or None where it has it."""
    if hardware.kind == "cpu":
        has_it = hardware.memory_gib <= facts.memory_gib
        return None if has_it else f"this machine has {facts.memory_gib:.1f}"
    if hardware.kind == "cuda":
        return _cuda_lack(hardware, facts)
    return None if facts.system == "Darwin" else f"this is {facts.system}"


def fitting_gpus(hardware: Hardware, facts: HardwareFacts) -> list[float]:
    """Memory in GiB of every GPU here that is of the declared kind."""
    least_gib = 0.95 * hardware.memory_gib
    return [gpu.memory_gib for gpu in facts.gpus if gpu.sm == hardware.sm and gpu.memory_gib >= least_gib]


def _cuda_lack(hardware: Hardware, facts: HardwareFacts) -> str | None:
    if not facts.gpus:
        return facts.gpu_note
    if len(fitting_gpus(hardware, facts)) >= hardware.count:
        return None
    return f"this machine has {', '.join(f'{gpu.name} (sm {gpu.sm})' for gpu in facts.gpus)}"
