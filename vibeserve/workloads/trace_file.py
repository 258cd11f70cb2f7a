"""A recorded trace of requests: one JSON object a line, checked before anything is made of it (`docs/workloads.md`)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from vibeserve.errors import SpecError
from vibeserve.spec import Workload
from vibeserve.workloads.exact_text import MIN_PROMPT_TOKENS

MAX_LINES = 1_000_000
"""more are refused: a trace is read whole"""
MAX_SHOWN = 20
"""faults that are listed; the rest are counted"""
CLOCKS = ("arrival_s", "timestamp")
"""keys that say when a request arrives"""
HINT = "docs/workloads.md describes the lines of a trace"


@dataclass(frozen=True, kw_only=True)
class TraceLine:
    """One recorded request."""

    number: int
    """line of the file, from 1"""
    arrival_s: float | None
    """after the first request; None where the trace records no arrivals"""
    clock: str
    """the key that says when it arrives, arrival_s or timestamp; empty where none does"""
    prompt: str | None
    """None = running text of `prompt_tokens` tokens"""
    prompt_tokens: int
    """0 = as many as `prompt` has"""
    output_tokens: int


def read_trace(workload: Workload) -> tuple[TraceLine, ...]:
    """The lines of `workload.trace`, whose lengths are in the workload's ranges. SpecError with `file:line` else."""
    problems = trace_problems(workload)
    if problems:
        raise SpecError(f"workload.trace: {Path(workload.trace).name} cannot be replayed", problems=problems, hint=HINT)
    return _read(Path(workload.trace))[0]


def trace_problems(workload: Workload) -> list[str]:
    """Every fault of the file at `workload.trace`, each with its place; a long list is cut."""
    path = Path(workload.trace)
    if not workload.trace:
        return ["workload.trace: a trace workload needs the path of a JSONL file"]
    if not path.is_file():
        return [f"workload.trace: no file {path}"]
    lines, problems = _read(path)
    problems = [*problems, *_out_of_range(lines, workload, shown=path.name)]
    if not problems and any(load.trace_speed for load in workload.loads.values()):
        if lines[0].arrival_s is None:
            problems.append(f"{path.name}:{lines[0].number}: no arrival_s or timestamp, and a load has trace_speed")
        elif not mean_rate_per_s(lines):
            problems.append(f"{path.name}: all requests arrive at once, and a load has trace_speed")
    left_out = len(problems) - MAX_SHOWN
    return problems if left_out <= 0 else [*problems[:MAX_SHOWN], f"and {left_out} more"]


def mean_rate_per_s(lines: tuple[TraceLine, ...]) -> float:
    """Mean arrivals per second as recorded; 0 where the trace records none or all at once."""
    first, last = lines[0].arrival_s, lines[-1].arrival_s
    return (len(lines) - 1) / (last - first) if first is not None and last is not None and last > first else 0.0


def _read(path: Path) -> tuple[tuple[TraceLine, ...], list[str]]:
    status = path.stat()
    return _read_version(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4)
def _read_version(path: Path, mtime_ns: int, size: int) -> tuple[tuple[TraceLine, ...], list[str]]:
    """Lines and faults; the arguments beside the path are what makes a changed file another one."""
    try:
        rows = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        return (), [f"{path.name}: not UTF-8 text: {error.reason} at byte {error.start}"]
    if len(rows) > MAX_LINES:
        return (), [f"{path.name}: {len(rows)} lines, at most {MAX_LINES} are read"]
    lines, problems = [], []
    for number, row in enumerate(rows, start=1):
        if row.strip():
            try:
                lines.append(_parse(row, number))
            except ValueError as error:
                problems.append(f"{path.name}:{number}: {error}")
    problems += [f"{path.name}:{number}: {what}" for number, what in _order_faults(lines)]
    if not rows or (not lines and not problems):
        problems.append(f"{path.name}: holds no request")
    return tuple(_from_first(lines)), problems


def _parse(row: str, number: int) -> TraceLine:
    try:
        data = json.loads(row)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    if not isinstance(data, dict):
        raise ValueError(f"expected a JSON object, got {type(data).__name__}")
    prompt = data.get("prompt")
    if prompt is not None and (not isinstance(prompt, str) or not prompt):
        raise ValueError("prompt: expected text that is not empty")
    if (prompt is None) == (data.get("prompt_tokens") is None):
        raise ValueError("needs exactly one of prompt (text) and prompt_tokens (a length)")
    return TraceLine(
        number=number,
        arrival_s=_arrival(data),
        clock=next((key for key in CLOCKS if data.get(key) is not None), ""),
        prompt=prompt,
        prompt_tokens=0 if prompt is not None else _count(data, "prompt_tokens", least=MIN_PROMPT_TOKENS),
        output_tokens=_count(data, "output_tokens", least=1),
    )


def _count(data: dict[str, Any], key: str, *, least: int) -> int:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        shown = "none" if value is None else json.dumps(value)
        raise ValueError(f"{key}: expected a whole number of at least {least}, got {shown}")
    return value


def _arrival(data: dict[str, Any]) -> float | None:
    """Seconds by the trace's own clock, from `arrival_s` (a number) or `timestamp` (seconds, or ISO 8601)."""
    if "arrival_s" in data and "timestamp" in data:
        raise ValueError("needs at most one of arrival_s and timestamp")
    key = "timestamp" if "timestamp" in data else "arrival_s"
    value = data.get(key)
    if value is None:
        return None
    if key == "timestamp" and isinstance(value, str):
        try:
            return datetime.fromisoformat(value).timestamp()
        except ValueError:
            raise ValueError(f"timestamp: '{value}' is no number of seconds and no ISO 8601 time") from None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{key}: expected seconds, got {json.dumps(value)}")
    return float(value)


def _order_faults(lines: list[TraceLine]) -> Iterator[tuple[int, str]]:
    """Arrivals are there for all requests or for none, and never go back."""
    for before, line in pairwise(lines):
        if (line.arrival_s is None) != (before.arrival_s is None):
            what = "no arrival" if line.arrival_s is None else "an arrival"
            yield line.number, f"has {what}, unlike line {before.number}; state it for all requests or for none"
        elif line.clock != before.clock:
            told = f"arrives by {line.clock}, line {before.number} by {before.clock}; all requests need the same"
            yield line.number, told
        elif line.arrival_s is not None and before.arrival_s is not None and line.arrival_s < before.arrival_s:
            yield line.number, f"arrives {before.arrival_s - line.arrival_s:g} s before line {before.number}"


def _from_first(lines: list[TraceLine]) -> Iterator[TraceLine]:
    first = lines[0].arrival_s if lines else None
    for line in lines:
        arrival_s = None if line.arrival_s is None else line.arrival_s - (first or 0.0)
        yield TraceLine(
            number=line.number, arrival_s=arrival_s, clock=line.clock, prompt=line.prompt,
            prompt_tokens=line.prompt_tokens, output_tokens=line.output_tokens,
        )  # fmt: skip


def _out_of_range(lines: tuple[TraceLine, ...], workload: Workload, *, shown: str) -> Iterator[str]:
    for line in lines:
        for what in ("prompt_tokens", "output_tokens"):
            value, low, high = (
                getattr(line, what), getattr(workload, f"{what}_min"), getattr(workload, f"{what}_max")
            )  # fmt: skip
            if value and value < low:
                yield f"{shown}:{line.number}: {what} {value} is below workload.{what}_min {low}"
            elif value > high:
                yield f"{shown}:{line.number}: {what} {value} is above workload.{what}_max {high}"
