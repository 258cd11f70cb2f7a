"""From recordings to the document: what every slice gave, put together under the observer rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vibeserve.profiles.documents import SPANS, STACKS, Bottleneck, Observed, Profile, Structure, ThreadFact
from vibeserve.profiles.floors import UNBOUNDED, UnitFloors
from vibeserve.profiles.linux_perf import native_symbols
from vibeserve.profiles.observer import under_rule
from vibeserve.profiles.ranking import Tally, amdahl_ceiling, rank
from vibeserve.profiles.samples import NativeSample, Stack
from vibeserve.profiles.seams import lines_of
from vibeserve.profiles.threads import ThreadClock, cpu_shares

MIN_INSTANTS = 50
"""samples below which shares are noise: a share of a half is then off by 14 points at two standard errors"""
MAX_THREADS = 16
OUTPUT_TOKEN, REQUEST = "output token", "request"
UNITS: dict[str, str] = {"output_throughput": OUTPUT_TOKEN, "request_throughput": REQUEST}
"""metric of the observer rule -> what one unit of it is"""


@dataclass(kw_only=True)
class Evidence:
    """What the slices of one server under one load gave."""

    load: str
    workspace: Path
    stacks: list[tuple[Stack, ...]] = field(default_factory=list)
    """by recording"""
    native: tuple[NativeSample, ...] = ()
    threads_before: dict[int, ThreadClock] = field(default_factory=dict)
    threads_after: dict[int, ThreadClock] = field(default_factory=dict)
    libraries: tuple[str, ...] = ()
    seconds: float = 0.0
    """of the profiled slices"""
    threads_s: float = 0.0
    """between the two readings of the threads"""
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        """Say something once."""
        if text and text not in self.notes:
            self.notes.append(text)


def build_profile(evidence: Evidence, *, observed: Observed | None, floors: UnitFloors = UNBOUNDED) -> Profile:
    """The profile of `stacks`. Its shares stand under the observer rule, and want enough samples."""
    tally = Tally()
    source_line = lines_of(evidence.workspace)
    for stacks in evidence.stacks:
        tally.add(stacks, source_line=source_line)
    unit = UNITS.get(observed.metric, "") if observed else ""
    unit_s = 1 / observed.profiled if observed and unit and observed.profiled > 0 else None
    # a reading of the roofline is of tokens; other units have no floor in a plan
    bounds = floors if unit == OUTPUT_TOKEN else UNBOUNDED
    has_enough = tally.instants >= MIN_INSTANTS
    if not has_enough:
        evidence.note(f"{tally.instants} samples are too few for shares: {MIN_INSTANTS} are needed")
    profile = Profile(
        tool=STACKS, load=evidence.load, seconds=round(evidence.seconds, 2), num_samples=tally.instants, unit=unit,
        num_native_samples=len(evidence.native),
        unit_s=unit_s, unit_floor_s=bounds.whole_s if unit_s else None,
        bottlenecks=rank(tally, unit_s=unit_s, floors=bounds) if has_enough else (),
        structure=_structure(evidence, tally), notes=tuple(evidence.notes),
    )  # fmt: skip
    return under_rule(profile, observed)


def _structure(evidence: Evidence, tally: Tally) -> Structure:
    return Structure(
        num_processes=len({clock.pid for clock in evidence.threads_after.values()}) or len(tally.processes),
        threads=_threads(evidence, tally), libraries=evidence.libraries, functions=tuple(sorted(tally.functions)),
        symbols=native_symbols(evidence.native),
    )  # fmt: skip


def _threads(evidence: Evidence, tally: Tally) -> tuple[ThreadFact, ...]:
    """The busiest first. Python's own name of a thread where stacks were seen on it."""
    shares = cpu_shares(evidence.threads_before, evidence.threads_after, seconds=evidence.threads_s)
    python = {(pid, tid): name for stacks in evidence.stacks for pid, tid, name in _python_threads(stacks)}
    rows = []
    for tid, share in shares.items():
        clock = evidence.threads_after[tid]
        name = python.get((clock.pid, str(clock.inner_tid)), "")
        rows.append(ThreadFact(name=name or clock.name, cpu_share=round(share, 3), is_python=bool(name)))
    return tuple(sorted(rows, key=lambda row: (-row.cpu_share, row.name))[:MAX_THREADS])


def _python_threads(stacks: Sequence[Stack]) -> set[tuple[int, str, str]]:
    return {(stack.pid, stack.tid, stack.thread) for stack in stacks}


def spans_profile(spans: Mapping[str, float], *, load: str, notes: Sequence[str] = ()) -> Profile:
    """The tool `spans`: the server's own counters as a profile. They are the candidate's word: shares to plan by, no
    evidence, and nothing that the observer rule could hold against a control."""
    rows = [
        Bottleneck(name=name, share=round(share, 4), amdahl_ceiling=amdahl_ceiling(share))
        for name, share in spans.items()
        if share > 0
    ]
    return Profile(
        tool=SPANS, load=load, is_own_word=True, notes=tuple(notes),
        bottlenecks=tuple(sorted(rows, key=lambda row: (-row.share, row.name))),
    )  # fmt: skip
