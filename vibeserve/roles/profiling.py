"""Profiling one server under the observer rule: control and profiled slices in turns, under a load of its own.

It comes after the windows that decide, on the same process, and none of its replies is judged.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vibeserve.benchmark import window_metrics
from vibeserve.client import LoadSession
from vibeserve.contract import Record
from vibeserve.errors import InfraError
from vibeserve.modalities import Bundle
from vibeserve.profiles import (
    UNITS,
    Evidence,
    LinuxPerf,
    Observed,
    Profile,
    Profiler,
    PySpy,
    Recording,
    Target,
    build_profile,
    mapped_libraries,
    observe,
    order_of_slices,
    read_threads,
    spans_profile,
    unit_floors,
)
from vibeserve.roles.loads import end_load
from vibeserve.roles.workbench import Workbench
from vibeserve.service import Server
from vibeserve.spec import ClockKind, ProfileKind
from vibeserve.workloads import Pool

SETTLE_S = 1.0
"""under load before the first slice: its first steps are nothing but prefills"""
SLICE_S, NUM_EACH, MAX_EACH = 2, 2, 6
"""slices of two seconds, at least four: a profile costs a round ten seconds, of a slow runtime up to thirty"""
MIN_REPLIES = 1.5
"""times that a reply takes, which either kind of slices lasts together: requests of a closed loop that begin together
are in their prefill together, and a shorter look falls wholly into it or beside it"""
NATIVE_S = 1


ELSEWHERE = "the server is on another machine: no profiler looks into it"


@dataclass(kw_only=True)
class Profiling:
    """Profiles of servers of one bench. `tools`: what looks at stacks, and what at native symbols."""

    bench: Workbench
    stacks: Profiler = field(default_factory=PySpy)
    native: Profiler = field(default_factory=LinuxPerf)
    sleep: Callable[[float], None] = time.sleep

    def take(
        self, server: Server, *, workspace: Path, load: str, pool: Pool, seed: int, spans: Mapping[str, float],
        reply_s: float = 0.0,
    ) -> Profile | None:  # fmt: skip
        """The profile of a paused server, which is left paused. None where the spec asks for none.

        `spans`: its own word of its windows. `reply_s`: how long a reply took in them. Raises nothing for what a tool
        or the server does: what is missing is a note in it, and then it holds nothing against
        the candidate.
        """
        evaluation = self.bench.plan.spec.evaluation
        if evaluation.profile is ProfileKind.off or evaluation.clock is ClockKind.fake:
            return None
        is_elsewhere = self.bench.plan.spec.host.kind != "local"
        why_not = ELSEWHERE if is_elsewhere else self.stacks.why_not()
        if evaluation.profile is ProfileKind.spans or why_not:
            return spans_profile(spans, load=load, notes=[why_not] if why_not else [])
        with self.bench.lease.exclusive(f"profile of {server.name}"), self.bench.spent.on("profile"):
            return self._sampled(
                server, workspace=workspace, load=load, pool=pool, seed=seed, spans=spans, num_each=num_slices(reply_s)
            )

    def _sampled(
        self, server: Server, *, workspace: Path, load: str, pool: Pool, seed: int, spans: Mapping[str, float],
        num_each: int,
    ) -> Profile:  # fmt: skip
        evidence = Evidence(load=load, workspace=workspace)
        with tempfile.TemporaryDirectory(dir=self.bench.run_dir, prefix="profile-") as folder:
            target = Target(
                pids=server.process.descendants, folder=Path(folder),
                wrap=lambda argv: self.bench.host.join_argv(server.process, argv, cpus=self.bench.plan.client_cpus),
            )  # fmt: skip
            try:
                server.resume()
                session = self.bench.session(server, load=load, pool=pool, seed=seed, is_plain=True)
                cuts, native, replies = self._under_load(
                    server, session, target=target, evidence=evidence, num_each=num_each
                )
            except InfraError as error:
                # a server or a generator that ends now was measured before; it says nothing of the candidate
                return spans_profile(spans, load=load, notes=[f"not profiled: {str(error).splitlines()[0]}"])
            native = self.native.read(native)  # with the server paused: it takes a core for seconds
        evidence.note(native.why_not)
        evidence.native = native.native
        observed = _observed(replies, cuts, bundle=self.bench.bundle)
        return build_profile(evidence, observed=observed, floors=unit_floors(self.bench.plan, load=load))

    def _under_load(
        self, server: Server, session: LoadSession, *, target: Target, evidence: Evidence, num_each: int
    ) -> tuple[list[Cut], Recording, list[Record]]:
        """All slices, what was seen of native code after them, and the replies. The load is ended then."""
        try:
            session.start()
            self.sleep(SETTLE_S)
            evidence.threads_before, started_s = read_threads(target.pids()), time.monotonic()
            cuts = [
                self._slice(session, target=target, evidence=evidence, is_profiled=is_profiled)
                for is_profiled in order_of_slices(num_each)
            ]
            evidence.threads_after = read_threads(target.pids())
            evidence.threads_s = time.monotonic() - started_s
            evidence.libraries = mapped_libraries(target.pids())
            why_not = self.native.why_not()
            native = Recording(why_not=why_not) if why_not else self.native.record(target, seconds=NATIVE_S)
            session.check()
        finally:
            replies = end_load(server, session)
        return cuts, native, replies

    def _slice(self, session: LoadSession, *, target: Target, evidence: Evidence, is_profiled: bool) -> Cut:
        start_s = session.active_now_s()
        if is_profiled:
            recording = self.stacks.record(target, seconds=SLICE_S)
            evidence.note(recording.why_not)
            evidence.stacks.append(recording.stacks)
        else:
            self.sleep(SLICE_S)
        end_s = session.active_now_s()
        evidence.seconds += end_s - start_s if is_profiled else 0.0
        return Cut(start_s=start_s, end_s=end_s, is_profiled=is_profiled)


def num_slices(reply_s: float) -> int:
    """How many slices of either kind: enough to see a whole reply of `reply_s` seconds and the half of the next one."""
    return min(MAX_EACH, max(NUM_EACH, math.ceil(MIN_REPLIES * reply_s / SLICE_S)))


@dataclass(frozen=True, kw_only=True)
class Cut:
    """One slice, in active seconds of its load."""

    start_s: float
    end_s: float
    is_profiled: bool


def _observed(replies: Sequence[Record], cuts: Sequence[Cut], *, bundle: Bundle) -> Observed | None:
    """The throughput of both kinds of slices: tokens where the workload has them, else requests."""
    found = [
        (cut.is_profiled, window_metrics(replies, start_s=cut.start_s, end_s=cut.end_s, bundle=bundle)) for cut in cuts
    ]
    metric = next((name for name in UNITS if all(name in values for _, values in found)), None)
    if metric is None:
        return None
    rates = [(is_profiled, values[metric]) for is_profiled, values in found]
    return observe(
        [rate for is_profiled, rate in rates if not is_profiled], [rate for is_profiled, rate in rates if is_profiled],
        metric=metric,
    )  # fmt: skip
