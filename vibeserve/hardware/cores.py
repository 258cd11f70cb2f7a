"""Which cores serve and which measure."""

from __future__ import annotations

from vibeserve.errors import SpecError
from vibeserve.hardware.facts import HardwareFacts
from vibeserve.spec import Hardware


def resolve_cpus(hardware: Hardware, facts: HardwareFacts) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(engine, client) CPUs. `auto`: the client has the last, the engine the others; with one core both share it.

    Raises SpecError when a declared list does not parse or names CPUs that this process may not use.
    """
    client = _declared(hardware.client_cpus, "hardware.client_cpus", facts) or facts.cpus[-1:]
    engine = _declared(hardware.engine_cpus, "hardware.engine_cpus", facts)
    if engine is None:
        engine = tuple(cpu for cpu in facts.cpus if cpu not in client) or facts.cpus
    return engine, client


def _declared(text: str, key: str, facts: HardwareFacts) -> tuple[int, ...] | None:
    if text == "auto":
        return None
    cpus = parse_cpus(text, key=key)
    absent = [cpu for cpu in cpus if cpu not in facts.cpus]
    if absent:
        raise SpecError(
            f"{key}: this process may not use CPU {', '.join(map(str, absent))}",
            problems=[f"valid: auto, or a subset of {format_cpus(facts.cpus)}"],
        )
    return cpus


def parse_cpus(text: str, *, key: str) -> tuple[int, ...]:
    """`0-2,5` -> (0, 1, 2, 5), the kernel's list format."""
    cpus: set[int] = set()
    for part in text.split(","):
        low, separator, high = part.strip().partition("-")
        if not low.isdigit() or (separator and not high.isdigit()) or (separator and int(high) < int(low)):
            raise SpecError(f"{key}: '{text}' is no list of CPUs", problems=["valid: auto, or such as 0-2 or 0,2"])
        cpus.update(range(int(low), int(high or low) + 1))
    return tuple(sorted(cpus))


def format_cpus(cpus: tuple[int, ...]) -> str:
    """(0, 1, 2, 5) -> `0-2,5`."""
    runs: list[list[int]] = []
    for cpu in cpus:
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
