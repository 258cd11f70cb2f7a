"""Side by side: every contender stays resident under its own load, one runs at a time, in an order that cancels drift.

Between its slices a contender's generator and server are stopped, so its closed loop, its mix of prefill and decode
and its caches go on where they were, and nothing is cut at the borders of a window. Orders are random by seed and
every second pair is run backwards (A B, B A), so that a linear drift falls on all alike.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from vibeserve.benchmark.disturbance import DisturbedPair, bandwidth_of, disturbances
from vibeserve.benchmark.neighbours import Reading, gpu_slowdowns, neighbour_facts, read_counters
from vibeserve.benchmark.sentinel import Sentinel, machine_facts
from vibeserve.errors import InfraError, ServerError

POLL_S = 0.2


class PausableServer(Protocol):
    """A server whose whole process tree can be stopped and continued."""

    name: str

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def cpu_s(self) -> float:
        """CPU seconds of the whole process tree so far."""

    def poll(self) -> int | None:
        """None while it runs, else its exit status."""

    @property
    def outcome(self) -> str:
        """Of a server that has ended: `died`, or the limit that it ran into."""

    def log_tail(self) -> str: ...


class Session(Protocol):
    """A load in active time (`vibeserve.client.LoadSession`)."""

    @property
    def is_started(self) -> bool: ...

    def start(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def active_now_s(self) -> float: ...

    def check(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class Contender:
    name: str
    server: PausableServer
    session: Session


@dataclass(frozen=True, kw_only=True)
class Slice:
    """One window of one contender: [start_s, end_s) in active seconds of its session."""

    contender: str
    pair: int
    position: int
    """place in the order of its pair"""
    start_s: float
    end_s: float
    resumed_s: float = 0.0
    """when its load went on, in the same seconds: the warm-up is from here to `start_s`"""
    facts: dict[str, float] = field(default_factory=dict)
    """the machine before the slice: psi_avg10, steal_s, psi_share, sentinel_huge_gb_s, sentinel_4k_gb_s (the last three
    are read once a pair); during it: steal_share, foreign_share, num_throttled (`neighbours`)"""


@dataclass(frozen=True, kw_only=True)
class Discarding:
    """What becomes of pairs that the machine spoilt: they are measured again, in the same order of contenders."""

    max_pairs: int
    """so many may be dropped"""
    is_strict: bool
    """beyond that: InfraError; else what comes then is kept as it is"""
    tell: Callable[[DisturbedPair], None]


@dataclass(frozen=True, kw_only=True)
class Devices:
    """What the contenders run on, and nobody else should."""

    cpus: Sequence[int] = ()
    gpus: Sequence[int] = ()
    """indices as NVML counts them"""


def interleave(
    contenders: Sequence[Contender],
    *,
    num_pairs: int,
    window_s: float,
    warmup_s: float,
    seed: int,
    first_warmup_s: float | None = None,
    between: Callable[[int], None] | None = None,
    devices: Devices = Devices(),
    discarding: Discarding | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> list[list[Slice]]:
    """Measure `num_pairs` windows of every contender; one list of slices per contender, in pair order.

    Servers are up, sessions are not started or paused; both are left paused. A slice: server, then session continued;
    `warmup_s` (before a contender's first window `first_warmup_s`); the window; session, then server paused.
    `between(k)` is called before pair k with everything paused. Without `discarding` every pair is kept, however noisy
    the machine. ServerError names a server that died, InfraError a dead generator, or a machine without quiet.
    """
    if len({contender.name for contender in contenders}) != len(contenders):
        raise ValueError("contenders need distinct names")
    run = _Run(
        contenders=contenders, devices=devices, window_s=window_s, warmup_s=warmup_s, first_warmup_s=first_warmup_s,
        sleep=sleep, sentinel=Sentinel(cpus=devices.cpus),
    )  # fmt: skip
    for contender in contenders:
        run.halt(contender)
    pairs: list[list[Slice]] = []
    for pair, order in enumerate(orders(len(contenders), num_pairs=num_pairs, seed=seed)):
        if between is not None:
            between(pair)
        pairs.append(_kept_pair(run, pair, order, discarding=discarding))
    by_name = {contender.name: [part for slices in pairs for part in slices] for contender in contenders}
    return [[part for part in parts if part.contender == name] for name, parts in by_name.items()]


def _kept_pair(run: _Run, pair: int, order: Sequence[int], *, discarding: Discarding | None) -> list[Slice]:
    """The pair, measured until the machine let it stand."""
    while True:
        slices = run.pair(pair, order)
        reasons = disturbances(slices, bandwidths=run.bandwidths)
        run.bandwidths += bandwidth_of(slices)
        if discarding is None or not reasons:
            return slices
        if run.num_dropped >= discarding.max_pairs:
            if discarding.is_strict:
                raise InfraError(
                    f"the machine does not keep quiet: {run.num_dropped + 1} pairs were disturbed, the last one by: "
                    f"{reasons[0]}\nnext: stop what else runs here, or choose other cores (hardware.engine_cpus)"
                )
            return slices
        run.num_dropped += 1
        facts = {part.contender: part.facts for part in slices}
        discarding.tell(DisturbedPair(pair=pair, reasons=reasons, facts=facts))


def orders(num_contenders: int, *, num_pairs: int, seed: int) -> list[list[int]]:
    """The order of contenders in each pair: random by seed, every second one the mirror image of the one before."""
    draw = random.Random(seed)
    result: list[list[int]] = []
    for pair in range(num_pairs):
        if pair % 2:
            order = result[-1][::-1]
        else:
            order = list(range(num_contenders))
            draw.shuffle(order)
        result.append(order)
    return result


@dataclass(kw_only=True)
class _Run:
    contenders: Sequence[Contender]
    devices: Devices
    window_s: float
    warmup_s: float
    first_warmup_s: float | None
    sleep: Callable[[float], None]
    sentinel: Sentinel
    seen: set[str] = field(default_factory=set)
    bandwidths: list[float] = field(default_factory=list)
    """of the sentinel, before every pair so far"""
    num_dropped: int = 0

    def pair(self, pair: int, order: Sequence[int]) -> list[Slice]:
        """One window of every contender."""
        readings = self.sentinel.read()
        slices = []
        for position, index in enumerate(order):
            contender = self.contenders[index]
            facts = machine_facts() | readings
            before, started_s = self._counters(contender), time.monotonic()
            resumed_s, start_s, end_s = self.window(contender)
            facts |= neighbour_facts(
                before, self._counters(contender), cpus=len(set(self.devices.cpus)),
                seconds=time.monotonic() - started_s,
            )  # fmt: skip
            slowed = gpu_slowdowns(self.devices.gpus)
            facts |= {"num_throttled": facts.get("num_throttled", 0.0) + len(slowed)} if slowed else {}
            slices.append(
                Slice(
                    contender=contender.name,
                    pair=pair,
                    position=position,
                    start_s=start_s,
                    end_s=end_s,
                    resumed_s=resumed_s,
                    facts=facts,
                )
            )
        return slices

    def _counters(self, contender: Contender) -> Reading | None:
        return read_counters(self.devices.cpus, tree_s=contender.server.cpu_s())

    def window(self, contender: Contender) -> tuple[float, float, float]:
        """Run one slice; (its beginning, the window) in active seconds."""
        warmup_s = self.warmup_s
        if contender.name not in self.seen and self.first_warmup_s is not None:
            warmup_s = self.first_warmup_s
        self.seen.add(contender.name)
        check_alive(contender)
        contender.server.resume()
        try:
            if contender.session.is_started:
                contender.session.resume()
            else:
                contender.session.start()
            resumed_s = contender.session.active_now_s()
            start_s = resumed_s + warmup_s
            end_s = start_s + self.window_s
            while (left_s := end_s - contender.session.active_now_s()) > 0:
                check_alive(contender)
                self.sleep(min(left_s, POLL_S))
            check_alive(contender)
        finally:
            self.halt(contender)
        return resumed_s, start_s, end_s

    def halt(self, contender: Contender) -> None:
        """Generator first, then the server: nothing is sent to a server that does not run."""
        if contender.session.is_started:
            contender.session.pause()
        contender.server.pause()


def check_alive(contender: Contender) -> None:
    """ServerError when its server has ended, InfraError when its generator has."""
    status = contender.server.poll()
    if status is not None:
        raise ServerError(
            contender.name,
            outcome=contender.server.outcome,
            detail=f"exit status {status} under load",
            log_tail=contender.server.log_tail(),
        )
    if contender.session.is_started:
        contender.session.check()
