"""How large a number of a spec may be. What lies outside is a slip of the pen, and no later step has to bear it.

Every number is finite; a field of the spec is not negative and at most `MOST`, where the table says nothing tighter.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

MOST = 10**15

LARGEST: dict[str, int] = {
    "Model.num_layers": 10_000,
    "Model.num_attention_layers": 10_000,
    "Model.hidden_size": 10**6,
    "Model.intermediate_size": 10**7,
    "Model.num_heads": 10**5,
    "Model.num_kv_heads": 10**5,
    "Model.head_dim": 10**5,
    "Model.vocab_size": 10**8,
    "Model.max_context_tokens": 10**9,
    "LinearState.num_layers": 10_000,
    "Hardware.count": 10**5,
    "Hardware.engine_threads": 10_000,
    "Hardware.memory_gib": 10**6,
    "Load.concurrency": 10**5,
    "Load.rate_per_s": 10**6,
    "Budget.rounds": 10_000,
    "Budget.attempts": 1000,
    "Budget.wall_s": 10**8,
    "Search.patience": 10_000,
    "Sandbox.max_processes": 10**6,
    "Sandbox.max_memory_gib": 10**6,
    "Sandbox.max_disk_gib": 10**6,
}
"""`Class.field` -> largest value"""

MAX_LOADS = 64
MAX_GOALS = 64
MAX_BASELINES = 64


def most_of(cls: str, field: str) -> int:
    """Largest value of a numeric field of the spec's class `cls`."""
    return LARGEST.get(f"{cls}.{field}", MOST)


def bound_problems(node: Any, *, key: str = "") -> Iterator[str]:
    """`key: what` for every number below the dataclass `node` that is out of bounds, and every mapping too long."""
    for item in fields(node):
        value, where = getattr(node, item.name), f"{key}.{item.name}" if key else item.name
        if is_dataclass(value):
            yield from bound_problems(value, key=where)
        elif isinstance(value, dict | list):
            yield from _entries(value, where)
        else:
            yield from _number(value, where, least=0, most=most_of(type(node).__name__, item.name))


def _entries(value: Any, where: str) -> Iterator[str]:
    most = {"workload.loads": MAX_LOADS, "goals": MAX_GOALS, "baseline": MAX_BASELINES}.get(where)
    if most is not None and len(value) > most:
        yield f"{where}: {len(value)} entries; at most {most} are accepted"
        return
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for name, entry in pairs:
        below = f"{where}.{name}" if isinstance(value, dict) else f"{where}[{name}]"
        if is_dataclass(entry):
            yield from bound_problems(entry, key=below)
        elif isinstance(entry, dict | list):
            yield from _entries(entry, below)
        else:
            yield from _number(entry, below, least=-MOST, most=MOST)


def _number(value: Any, where: str, *, least: int, most: int) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    told = f"{where}: {value:g}" if isinstance(value, float) else f"{where}: {value}"
    if not math.isfinite(value):
        yield f"{told} is not a finite number"
    elif value < least:
        yield f"{told} is below {least}"
    elif value > most:
        yield f"{told} is above {most}, the most that is accepted"
