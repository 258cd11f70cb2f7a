"""The Performance Evaluator: side-by-side windows of servers under their own loads, and what was served in them."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

from vibeserve.benchmark import (
    Clock,
    Contender,
    Devices,
    Discarding,
    DisturbedPair,
    Slice,
    Span,
    held_back,
    interleave,
    window_metrics,
)
from vibeserve.client import LoadSession
from vibeserve.contract import Metric, Record
from vibeserve.core.nouns import Refusal
from vibeserve.profiles import Profile, profile_lines
from vibeserve.progress import Progress
from vibeserve.roles.loads import end_load
from vibeserve.roles.profiling import Profiling
from vibeserve.roles.workbench import Workbench, span_shares
from vibeserve.service import Server
from vibeserve.spec import ClockKind, Level
from vibeserve.workloads import Pool

FIRST_WARMUP = 3.0
"""the first warm-up of a contender is so many times longer: its loop starts with nothing but prefills"""
HALVING_WINDOWS = 2
MIN_FINISHED = 4
"""replies that a judgement needs, one of them with what the workload adds to some requests for the check"""
EVIDENCE_TIMEOUT_S = 180.0
EVIDENCE_POLL_S = 0.5


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """A server to be measured, and how to talk to it."""

    name: str
    server: Server
    dialect: str = "vllm"
    model: str = ""
    is_ours: bool = False
    """its requests hold what the check asks for, such as log-probabilities; another server may not know it"""
    is_judged: bool = False
    """its replies are evidence: it goes on, untimed, until there are enough of them"""


@dataclass(frozen=True, kw_only=True)
class Series:
    """What one entrant did: its windows in pair order, and every reply."""

    name: str
    windows: tuple[dict[str, float], ...]
    replies: tuple[Record, ...]
    facts: tuple[dict[str, float], ...] = ()
    """the machine before each window"""
    spans: dict[str, float] = field(default_factory=dict)
    """share of request time by span; only where asked for"""
    discarded: tuple[DisturbedPair, ...] = ()
    """pairs that the machine spoilt; they were measured again"""
    profile: Profile | None = None
    """of the seed and of what would be accepted, where the spec asks for one"""
    refusals: tuple[Refusal, ...] = ()
    """of an entrant that is judged: what its windows show by their timing"""

    def medians(self) -> dict[str, float]:
        """Median over the windows of every metric that all windows have."""
        shared = set.intersection(*(set(window) for window in self.windows)) if self.windows else set()
        return {name: median(window[name] for window in self.windows) for name in sorted(shared)}


class Evaluator:
    def __init__(
        self, bench: Workbench, clock: Clock, *, progress: Progress | None = None, profiling: Profiling | None = None
    ) -> None:
        self._bench = bench
        self._clock = clock
        self._progress = progress
        self._profiling = profiling or Profiling(bench=bench)

    def compare(
        self, entrants: Sequence[Entrant], *, load: str, pool: Pool, seed: int, num_pairs: int, window_s: float,
        warmup_s: float, profiled: str = "",
    ) -> dict[str, Series]:  # fmt: skip
        """Interleave `num_pairs` windows of every entrant under `load`. All are left paused, their loads ended.

        Holds the lease of the measured devices. `profiled` names the entrant whose spans are read before and after.
        ServerError names a server that died.
        """
        for entrant in entrants:
            # they may have to wait for the device, and must not use it meanwhile
            entrant.server.pause()
        what = f"windows of {', '.join(entrant.name for entrant in entrants)}"
        with self._bench.lease.exclusive(what), self._bench.spent.on("load"):
            return self._compare(
                entrants, load=load, pool=pool, seed=seed, num_pairs=num_pairs, window_s=window_s, warmup_s=warmup_s,
                profiled=profiled,
            )  # fmt: skip

    def _compare(
        self, entrants: Sequence[Entrant], *, load: str, pool: Pool, seed: int, num_pairs: int, window_s: float,
        warmup_s: float, profiled: str,
    ) -> dict[str, Series]:  # fmt: skip
        sessions = {entrant.name: self._session(entrant, load=load, pool=pool, seed=seed) for entrant in entrants}
        contenders = [Contender(name=e.name, server=e.server, session=sessions[e.name]) for e in entrants]
        servers = {entrant.name: entrant.server for entrant in entrants}
        before = self._bench.request_spans(servers[profiled]) if profiled else {}
        cpu_s = {entrant.name: entrant.server.cpu_s() for entrant in entrants}
        discarded: list[DisturbedPair] = []
        try:
            with self._bench.spent.on("windows"):
                slices = interleave(
                    contenders, num_pairs=num_pairs, window_s=window_s, warmup_s=warmup_s, seed=seed,
                    first_warmup_s=warmup_s * FIRST_WARMUP, devices=self._devices(),
                    discarding=self._discarding(discarded, num_pairs=num_pairs),
                )  # fmt: skip
            for entrant in entrants:
                if entrant.is_judged:
                    self._await_evidence(entrant.server, sessions[entrant.name])
        finally:
            replies = {e.name: end_load(e.server, sessions[e.name]) for e in entrants}
        for entrant in entrants:
            if any(reply.error is None for reply in replies[entrant.name]):
                entrant.server.check_counted(cpu_s=cpu_s[entrant.name])
        shares = span_shares(before, self._spans(servers[profiled])) if profiled else {}
        return {
            entrant.name: replace(
                self._series(entrant, row, replies[entrant.name], spans=shares if entrant.name == profiled else {}),
                discarded=tuple(discarded),
            )
            for entrant, row in zip(entrants, slices, strict=True)
        }

    def profiled(self, row: Series, entrant: Entrant, *, workspace: Path, load: str, pool: Pool, seed: int) -> Series:
        """The entrant's series with the profile of its server, taken now, after its windows. It is left paused."""
        took_s = [reply.end_s - reply.sent_s for reply in row.replies if reply.error is None]
        profile = self._profiling.take(
            entrant.server, workspace=workspace, load=load, pool=pool, seed=seed, spans=row.spans,
            reply_s=median(took_s) if took_s else 0.0,
        )  # fmt: skip
        if profile is not None and self._progress is not None:
            self._progress.event("profile", profile_lines(profile)[0] if profile_lines(profile) else profile.tool)
        return replace(row, profile=profile)

    def _devices(self) -> Devices:
        hardware = self._bench.plan.spec.hardware
        return Devices(cpus=self._bench.plan.engine_cpus, gpus=range(hardware.count) if hardware.kind == "cuda" else ())

    def _discarding(self, discarded: list[DisturbedPair], *, num_pairs: int) -> Discarding | None:
        """As many pairs again as are asked for; level quick, which nobody quotes, then takes what there is. The fake
        clock's numbers are nobody's to disturb."""
        evaluation = self._bench.plan.spec.evaluation
        if evaluation.clock is not ClockKind.real or self._bench.plan.spec.host.kind != "local":
            return None  # what this machine does says nothing of another

        def tell(pair: DisturbedPair) -> None:
            discarded.append(pair)
            if self._progress is not None:
                self._progress.event("measure", f"pair {pair.pair + 1} is measured again: {pair.reasons[0]}")

        is_strict = self._bench.plan.spec.budget.level is not Level.quick
        return Discarding(max_pairs=num_pairs, is_strict=is_strict, tell=tell)

    def halve(
        self,
        entrants: Sequence[Entrant],
        *,
        load: str,
        pool: Pool,
        seed: int,
        metric: str,
        window_s: float,
        warmup_s: float,
    ) -> str:
        """Successive halving: short windows of all, the better half goes on with windows twice as long; the last one's
        name.

        Its numbers choose what is offered, never what is accepted: the winner is measured afresh. One without a value
        of `metric` in some window comes last.
        """
        remaining = list(entrants)
        while len(remaining) > 1:
            series = self.compare(
                remaining,
                load=load,
                pool=pool,
                seed=seed,
                num_pairs=HALVING_WINDOWS,
                window_s=window_s,
                warmup_s=warmup_s,
            )
            speed = {name: _speed(row, self._bench.metrics[metric]) for name, row in series.items()}
            remaining.sort(key=lambda entrant: (-speed[entrant.name], entrant.name))
            remaining = remaining[: (len(remaining) + 1) // 2]
            window_s *= 2
        return remaining[0].name

    def _session(self, entrant: Entrant, *, load: str, pool: Pool, seed: int) -> LoadSession:
        entrant.server.resume()
        return self._bench.session(
            entrant.server, load=load, pool=pool, seed=seed, dialect=entrant.dialect, model=entrant.model,
            is_plain=not entrant.is_ours,
        )  # fmt: skip

    def _await_evidence(self, server: Server, session: LoadSession) -> None:
        """Let a slow server go on, untimed, until its replies can be judged. One that never gets there is judged as it
        is."""
        if self._is_judgeable(session):
            return
        server.resume()
        session.resume()
        deadline_s = session.active_now_s() + EVIDENCE_TIMEOUT_S
        while session.active_now_s() < deadline_s and server.poll() is None and not self._is_judgeable(session):
            session.check()
            time.sleep(EVIDENCE_POLL_S)
        session.pause()
        server.pause()

    def _is_judgeable(self, session: LoadSession) -> bool:
        bundle, finished = self._bench.bundle, session.finished()
        if len(finished) < MIN_FINISHED:
            return False
        adds_evidence = callable(getattr(bundle.workload, "plain", None))
        return not adds_evidence or any(bundle.plain(request) != request for request in finished)

    def _spans(self, server: Server) -> dict[str, float]:
        server.resume()
        try:
            return self._bench.request_spans(server)
        finally:
            server.pause()

    def _series(
        self, entrant: Entrant, row: Sequence[Slice], replies: list[Record], *, spans: Mapping[str, float]
    ) -> Series:
        measured = [
            window_metrics(replies, start_s=part.start_s, end_s=part.end_s, bundle=self._bench.bundle)
            | {"peak_memory": entrant.server.peak_memory_gib(), "start_s": part.start_s, "end_s": part.end_s}
            for part in row
        ]  # fmt: skip
        windows = tuple(_finite(window) for window in self._clock.read(entrant.name, measured))
        facts = tuple(part.facts for part in row)
        # a server's first slice begins with prefills and is no measure of the others
        later = [Span(resumed_s=part.resumed_s, start_s=part.start_s, end_s=part.end_s) for part in row[1:]]
        refused = held_back(replies, later, seed=len(replies)) if entrant.is_judged else None
        return Series(
            name=entrant.name, windows=windows, replies=tuple(replies), facts=facts, spans=dict(spans),
            refusals=(refused,) if refused else (),
        )  # fmt: skip


def _finite(window: Mapping[str, float]) -> dict[str, float]:
    """A figure that is no number is an absent one, for deciders and documents alike."""
    return {name: value for name, value in window.items() if math.isfinite(value)}


def _speed(row: Series, metric: Metric) -> float:
    """The more the better, whatever the metric's direction; 0 without a value."""
    value = row.medians().get(metric.name, 0.0)
    return metric.ratio(value, against=1.0) if value > 0 else 0.0


def merged(parts: Sequence[Series]) -> Series:
    """One series of several of the same entrant: starts of a certification, or searches in pieces."""
    first = parts[0]
    return replace(
        first,
        windows=tuple(window for part in parts for window in part.windows),
        replies=tuple(reply for part in parts for reply in part.replies),
        facts=tuple(facts for part in parts for facts in part.facts),
        discarded=tuple(pair for part in parts for pair in part.discarded),
        refusals=tuple(refusal for part in parts for refusal in part.refusals),
    )
