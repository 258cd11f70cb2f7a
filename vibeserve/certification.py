"""Certification: fresh seeds, fresh starts, the winner beside every baseline, all of its replies re-scored.

Only what is measured here is quoted. `certified` means that every gate of the level ran and passed and every required
baseline was measured, whatever the ratio.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vibeserve.accuracy import Scores
from vibeserve.audit import Snapshot
from vibeserve.contract import Record, ReplyDistances
from vibeserve.core.documents import finite_data, to_data
from vibeserve.core.manifest import BaselineValue, Golden, GoldenReply, MetricResult
from vibeserve.core.nouns import Refusal, Verdict
from vibeserve.errors import ServerError
from vibeserve.plan import Plan
from vibeserve.progress import Progress
from vibeserve.results import WINNER, Measured, Screened, metric_results
from vibeserve.rivals import SCREEN_SHARE, Rival, screened_by
from vibeserve.roles.evaluator import Entrant, Evaluator, Series
from vibeserve.roles.judge import Judge, Screening
from vibeserve.roles.workbench import Workbench
from vibeserve.service import Server
from vibeserve.workloads import Pool

SCREEN_WINDOWS = 3
"""the last one counts"""


@dataclass(frozen=True, kw_only=True)
class Extent:
    """How much is measured: from the level's schedule, or what a re-verification can afford."""

    loads: tuple[str, ...]
    """the headline load first"""
    num_starts: int
    num_pairs: int
    """per start"""
    window_s: float
    warmup_s: float
    screen_window_s: float


def certify_extent(plan: Plan) -> Extent:
    """Loads, starts, pairs and windows of the plan's certification; the headline load comes first."""
    workload, schedule = plan.spec.workload, plan.schedule
    others = [name for name in workload.loads if name != workload.headline_load]
    loads = (workload.headline_load, *(others if plan.spec.evaluation.loads == "all" else ()))
    return Extent(
        loads=loads, num_starts=schedule.certify_starts, num_pairs=schedule.certify_pairs,
        window_s=schedule.certify_window_s, warmup_s=schedule.certify_warmup_s,
        screen_window_s=schedule.screen_window_s,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Certification:
    """Everything that was found about one runtime. Without metrics where screening refused it."""

    verdict: Verdict
    metrics: tuple[MetricResult, ...] = ()
    golden: Golden | None = None
    num_requests: int = 0


@dataclass(kw_only=True)
class _Collected:
    """What the starts left."""

    series: dict[str, dict[str, list[Series]]] = field(default_factory=dict)
    """load -> entrant -> one series per start"""
    screened: list[Screened] = field(default_factory=list)
    seeds: dict[str, int] = field(default_factory=dict)
    startup_s: dict[str, list[float]] = field(default_factory=dict)

    def add(self, load: str, series: dict[str, Series]) -> None:
        for name, row in series.items():
            self.series.setdefault(load, {}).setdefault(name, []).append(row)

    def winner_replies(self, load: str) -> list[Record]:
        return [reply for row in self.series[load][WINNER] for reply in row.replies]


class Certifier:
    def __init__(self, bench: Workbench, judge: Judge, evaluator: Evaluator, *, progress: Progress) -> None:
        self._bench = bench
        self._judge = judge
        self._evaluator = evaluator
        self._progress = progress

    def certify(
        self, workspace: Path, *, rivals: Sequence[Rival], skipped: Sequence[BaselineValue], extent: Extent
    ) -> Certification:
        """Measure the frozen `workspace` beside `rivals`; `skipped` are rows of those that are not installed.

        Refusals are in the verdict, a winner that dies under load included; infrastructure failures, such as a dying
        rival, raise. The devices are held from the first start to the last window: starts are measured, too.
        """
        with self._bench.lease.exclusive("certification"):
            found = self._screen_and_measure(workspace, rivals, extent=extent)
        if isinstance(found, Certification):
            return found
        screening, collected, kept = found
        return self._conclude(workspace, kept, skipped, collected=collected, before=screening.before)

    def _screen_and_measure(
        self, workspace: Path, rivals: Sequence[Rival], *, extent: Extent
    ) -> Certification | tuple[Screening, _Collected, list[Rival]]:
        """All that was measured, or the refusal that ended it."""
        screening = self._judge.screen(workspace, name=WINNER, seed=secrets.randbits(31))
        if screening.server is None:
            return Certification(verdict=Verdict(refusals=screening.refusals, checks=screening.checks))
        collected = _Collected()
        try:
            kept = self._measure(workspace, screening.server, rivals, collected=collected, extent=extent)
        except ServerError as error:
            if error.name != WINNER:
                raise
            refusal = Refusal(gate="serving", reason_class=error.outcome, text=str(error))
            return Certification(verdict=Verdict(refusals=(refusal,), checks=(*screening.checks, "serving")))
        return screening, collected, kept

    def _measure(
        self, workspace: Path, server: Server, rivals: Sequence[Rival], *, collected: _Collected, extent: Extent
    ) -> list[Rival]:
        """Every start; the first one is up already. Returns the rivals that were interleaved."""
        server.pause()
        try:
            kept = self._screen_out(rivals, collected=collected, extent=extent)
            self._one_start(server, kept, collected=collected, extent=extent, start=0)
        finally:
            server.stop(drain_s=0)
        for start in range(1, extent.num_starts):
            server = self._bench.serve(workspace, name=WINNER)
            try:
                self._one_start(server, kept, collected=collected, extent=extent, start=start)
            finally:
                server.stop(drain_s=0)
        return kept

    def _screen_out(self, rivals: Sequence[Rival], *, collected: _Collected, extent: Extent) -> list[Rival]:
        """One window of each rival where some are optional; those far behind the best are not interleaved."""
        if all(rival.is_required for rival in rivals):
            return list(rivals)
        metric = screened_by(self._bench.plan.spec, self._bench.metrics)
        rates = {
            rival.name: rival.calibrated_per_s or self._screen(rival, metric=metric.name, extent=extent)
            for rival in rivals
        }
        best = max(rates.values())
        for rival in rivals:
            value = rates[rival.name]
            if not rival.is_required and value < SCREEN_SHARE * best:
                collected.screened.append(Screened(rival=rival, value=value))
                self._progress.event(
                    "certify", f"{rival.name} is screened out: {value:.4g} {metric.unit}, the best has {best:.4g}"
                )
        out = {row.rival.name for row in collected.screened}
        return [rival for rival in rivals if rival.name not in out]

    def _screen(self, rival: Rival, *, metric: str, extent: Extent) -> float:
        with self._progress.busy("certify", f"screening {rival.name}"):
            server = self._start(rival)
            try:
                series = self._evaluator.compare(
                    [_entrant(rival, server)], load=extent.loads[0], pool=Pool.certification, seed=secrets.randbits(31),
                    num_pairs=SCREEN_WINDOWS, window_s=extent.screen_window_s, warmup_s=extent.warmup_s,
                )  # fmt: skip
                # the first window of a slow server is mostly the first prompts' prefill
                return series[rival.name].windows[-1].get(metric, 0.0)
            finally:
                server.stop(drain_s=0)

    def _start(self, rival: Rival) -> Server:
        """A rival, up and warm."""
        server = self._bench.start(rival.launch)
        try:
            self._bench.warm_up(server, dialect=rival.dialect, model=rival.model)
        except BaseException:
            server.stop(drain_s=0)
            raise
        return server

    def _one_start(
        self, server: Server, rivals: Sequence[Rival], *, collected: _Collected, extent: Extent, start: int
    ) -> None:
        """Every load once, on one start of the winner and of every rival."""
        servers = {WINNER: server}
        try:
            for rival in rivals:
                server.pause()
                servers[rival.name] = self._start(rival)
                servers[rival.name].pause()
            entrants = [Entrant(name=WINNER, server=server, is_ours=True, is_judged=True)]
            entrants += [_entrant(rival, servers[rival.name]) for rival in rivals]
            for name, each in servers.items():
                collected.startup_s.setdefault(name, []).append(each.startup_s)
            for load in extent.loads:
                seed = collected.seeds[f"{load}/{start}"] = secrets.randbits(31)
                self._progress.event(
                    "certify", f"start {start + 1} of {extent.num_starts}, load {load}: {', '.join(servers)}"
                )
                series = self._evaluator.compare(
                    entrants, load=load, pool=Pool.certification, seed=seed, num_pairs=extent.num_pairs,
                    window_s=extent.window_s, warmup_s=extent.warmup_s,
                )  # fmt: skip
                collected.add(load, series)
        finally:
            for name, each in servers.items():
                if name != WINNER:
                    each.stop(drain_s=0)

    def _conclude(
        self,
        workspace: Path,
        kept: Sequence[Rival],
        skipped: Sequence[BaselineValue],
        *,
        collected: _Collected,
        before: Snapshot,
    ) -> Certification:
        replies = [reply for load in collected.series for reply in collected.winner_replies(load)]
        with self._progress.busy("certify", "running the runtime's own tests"):
            failed = self._judge.own_tests(workspace)
        with self._progress.busy("certify", f"re-scoring {len(replies)} replies under the f32 reference"):
            verdict, scores = self._judge.verdict(
                replies, workspace=workspace, before=before, seed=secrets.randbits(31), max_replies=0, name=WINNER,
                added=failed,
            )  # fmt: skip
        verdict = replace(verdict, checks=(*verdict.checks, "own_tests"))
        measured = Measured(
            series=collected.series, rivals=tuple(kept), screened=tuple(collected.screened), skipped=tuple(skipped),
            startup_s={name: max(values) for name, values in collected.startup_s.items()},
        )  # fmt: skip
        metrics = metric_results(measured, spec=self._bench.plan.spec, bundle=self._bench.bundle)
        return Certification(
            verdict=verdict, metrics=metrics, golden=_golden(collected, scores), num_requests=len(replies),
        )  # fmt: skip


def _entrant(rival: Rival, server: Server) -> Entrant:
    return Entrant(name=rival.name, server=server, dialect=rival.dialect, model=rival.model)


def _golden(collected: _Collected, scores: Scores) -> Golden:
    """The winner's replies with their distances from what is right; cut and failed ones are left out."""
    scored = {reply.request_id: reply for reply in scores.replies}
    replies = tuple(
        GoldenReply(
            request_id=reply.request.request_id, load=load, request=finite_data(to_data(reply.request)),
            output=finite_data(to_data(reply.served)), distances=_distances(scored.get(reply.request.request_id)),
        )
        for load in collected.series
        for reply in collected.winner_replies(load)
        if reply.error is None
    )  # fmt: skip
    return Golden(seeds=collected.seeds, replies=replies)


def _distances(reply: ReplyDistances | None) -> dict[str, tuple[float, ...]]:
    """By name; several of one name are one after the other."""
    names = [distance.name for distance in reply.distances] if reply else []
    return {name: reply.values(name) for name in dict.fromkeys(names)} if reply else {}
