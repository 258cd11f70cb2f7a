"""From samples of stacks to a ranked list: shares of wall time, Amdahl ceilings, distance to the roofline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from vibeserve.profiles.documents import Bottleneck, Frame
from vibeserve.profiles.floors import UNBOUNDED, UnitFloors
from vibeserve.profiles.samples import Stack, num_instants
from vibeserve.profiles.seams import SourceLine, function_of, is_waiting, path_in_runtime, seam_of

MIN_SHARE = 0.005
"""below it a row says nothing"""
MAX_FRAMES = 3
MAX_FUNCTIONS = 400
"""a runtime has fewer; a name that is made up at run time is not kept for ever"""

ThreadKey = tuple[int, str, str]
"""process, thread as it numbers itself, its name"""


@dataclass(kw_only=True)
class Tally:
    """Samples of several recordings of one server, added up."""

    instants: int = 0
    active: dict[ThreadKey, Counter[str]] = field(default_factory=dict)
    """thread -> seam -> samples in which it did something"""
    frames: dict[tuple[ThreadKey, str], dict[str, Counter[int]]] = field(default_factory=dict)
    """(thread, seam) -> innermost function of the runtime and its file -> line -> samples"""
    functions: set[str] = field(default_factory=set)
    processes: set[int] = field(default_factory=set)

    def add(self, stacks: Sequence[Stack], *, source_line: SourceLine) -> None:
        """One more recording."""
        self.instants += num_instants(stacks)
        for stack in stacks:
            self.processes.add(stack.pid)
            self._note_functions(stack)
            if is_waiting(stack, source_line=source_line) or not stack.frames:
                continue
            key, seam = (stack.pid, stack.tid, stack.thread), seam_of(stack)
            self.active.setdefault(key, Counter())[seam] += stack.count
            frame = function_of(stack) or stack.frames[-1]
            lines = self.frames.setdefault((key, seam), {})
            lines.setdefault(f"{frame.function} ({_short(frame.file)}", Counter())[frame.line] += stack.count

    def _note_functions(self, stack: Stack) -> None:
        for frame in stack.frames:
            path = path_in_runtime(frame.file)
            if path and len(self.functions) < MAX_FUNCTIONS:
                self.functions.add(f"runtime/{path}:{frame.function}")

    def busiest(self) -> ThreadKey | None:
        """The thread that did most; None where nothing was seen to do anything."""
        return max(self.active, key=lambda key: (self.active[key].total(), key), default=None)

    def active_share(self, key: ThreadKey) -> float:
        """Of wall time."""
        return self.active[key].total() / self.instants if self.instants and key in self.active else 0.0


def _short(file: str) -> str:
    path = path_in_runtime(file)
    return f"runtime/{path}" if path else "/".join(file.split("/")[-2:])


def rank(
    tally: Tally, *, unit_s: float | None = None, floors: UnitFloors = UNBOUNDED, min_share: float = MIN_SHARE
) -> tuple[Bottleneck, ...]:
    """One row a seam, by its share on the thread where it runs most. `unit_s`: wall time of one unit."""
    best: dict[str, tuple[float, ThreadKey]] = {}
    for key, seams in tally.active.items():
        for seam, count in seams.items():
            share = count / tally.instants
            best[seam] = max(best.get(seam, (0.0, key)), (share, key))
    rows = [
        _row(tally, seam, share=share, key=key, unit_s=unit_s, floors=floors)
        for seam, (share, key) in best.items()
        if share >= min_share
    ]
    return tuple(sorted(rows, key=lambda row: (-row.share, row.name)))


def _row(
    tally: Tally, seam: str, *, share: float, key: ThreadKey, unit_s: float | None, floors: UnitFloors
) -> Bottleneck:
    frames = sorted(tally.frames[key, seam].items(), key=lambda item: (-item[1].total(), item[0]))[:MAX_FRAMES]
    seconds = share * unit_s if unit_s else None
    floor_s = floors.by_seam.get(seam) if seconds is not None else None
    return Bottleneck(
        name=seam, share=round(share, 4), thread=key[2], amdahl_ceiling=amdahl_ceiling(share), seconds_each=seconds,
        floor_s=floor_s, distance=round(seconds / floor_s, 2) if seconds and floor_s else None,
        frames=tuple(
            Frame(name=f"{name}:{lines.most_common(1)[0][0]})", share=round(lines.total() / tally.instants, 4))
            for name, lines in frames
        ),
    )  # fmt: skip


def amdahl_ceiling(share: float) -> float | None:
    """1 / (1 - share) (Amdahl 1967): what is won at most where only this part becomes faster; None for the whole."""
    return round(1 / (1 - share), 3) if share < 0.9995 else None
