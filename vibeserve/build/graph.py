"""Nouns of the build graph, and the order of its steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from vibeserve.progress import Progress


class StepState(Enum):
    STARTED = "started"
    RAN = "ran"
    UP_TO_DATE = "up to date"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What a body returns: a JSON-able document, and the files or folders that it made."""

    document: Any
    outputs: tuple[Path, ...] = ()
    """beyond those that the step declares; each must exist"""


@dataclass(frozen=True, kw_only=True)
class StepOutcome:
    """A step's result as its dependants and the caller see it. `document` is plain JSON data, run or cached alike."""

    name: str
    state: StepState
    document: Any
    digest: str
    """over the document and the outputs' digests: what the keys of dependants are made of"""
    outputs: tuple[Path, ...] = ()
    seconds: float = 0.0
    """of the run that made it"""


@dataclass(frozen=True, kw_only=True)
class StepContext:
    """What a body gets."""

    name: str
    key: str
    work_dir: Path
    """the step's own folder under the state dir; kept between runs, so that a body can resume"""
    inputs: Any
    upstream: Mapping[str, StepOutcome]
    """of the declared dependencies, by name"""
    progress: Progress


@dataclass(frozen=True, kw_only=True)
class Step:
    """A node: it is redone when its inputs, an upstream result or one of its outputs changed."""

    name: str
    body: Callable[[StepContext], StepResult]
    deps: tuple[str, ...] = ()
    inputs: Any = None
    """whatever the body depends on beside its upstream results, as data that has one canonical JSON form"""
    outputs: tuple[Path, ...] = ()
    help: str = field(default="", compare=False)


def order_steps(steps: Sequence[Step], *, until: Sequence[str] = ()) -> list[Step]:
    """Steps in the order to run, dependencies first; only what `until` needs where it is given.

    A name that is declared twice, unknown or part of a cycle is a fault of the program: `ValueError`.
    """
    by_name = {step.name: step for step in steps}
    if len(by_name) != len(steps):
        raise ValueError(f"a step is declared twice: {[step.name for step in steps]}")
    wanted: set[str] = set()
    open_names = list(until) or list(by_name)
    while open_names:
        name = open_names.pop()
        if name not in by_name:
            raise ValueError(f"unknown step '{name}'; known: {', '.join(by_name)}")
        if name not in wanted:
            wanted.add(name)
            open_names += by_name[name].deps
    try:
        order = list(TopologicalSorter({name: by_name[name].deps for name in by_name if name in wanted}).static_order())
    except CycleError as error:
        raise ValueError(f"the steps form a cycle: {' -> '.join(error.args[1])}") from None
    return [by_name[name] for name in order]
