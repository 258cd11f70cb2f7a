"""A fault of what was declared: the place that stated it, the key, and what is wrong. One line each, in order."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path


class Source(IntEnum):
    """What states a value; a fault of a file comes before one of the command line."""

    file = 0
    command_line = 1
    default = 2


@dataclass(frozen=True, kw_only=True, order=True)
class Place:
    """Where a value is stated. `file` is as it is shown to the user; line and column count from 1, 0 = not known."""

    source: Source = Source.file
    file: str = ""
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if self.source is Source.command_line:
            return "(from the command line)"
        if self.source is Source.default:
            return "(default)"
        numbers = [number for number in (self.line, self.column) if number]
        return ":".join([self.file, *map(str, numbers)])


COMMAND_LINE = Place(source=Source.command_line)
DEFAULT = Place(source=Source.default)


@dataclass(frozen=True, kw_only=True, order=True)
class Fault:
    place: Place
    text: str
    """`key: what is wrong`, or only what is wrong where no key is at fault"""

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


def fault_lines(faults: Iterable[Fault]) -> list[str]:
    """The faults as lines, sorted by place; what is told twice is told once."""
    return list(dict.fromkeys(str(fault) for fault in sorted(faults)))


def shown(path: Path, cwd: Path) -> str:
    """`path` as messages show it: relative to `cwd` where it lies below."""
    return str(path.relative_to(cwd)) if path.is_relative_to(cwd) else str(path)
