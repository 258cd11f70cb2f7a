"""Certification: fresh seeds, fresh starts, the winner beside every baseline, all of its replies re-scored, its server
audited.

Only what is measured here is quoted. `certified` means that every gate and audit of the level ran and passed and every
required baseline was measured, whatever the ratio.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vibeserve.contract import Record
from vibeserve.core.manifest import AuditResult, BaselineValue, Golden, MetricResult
from vibeserve.core.nouns import Refusal, Verdict
from vibeserve.errors import ServerError
from vibeserve.golden import golden_of
from vibeserve.hardware import measure_bandwidth_gb_s
from vibeserve.joined import joined
from vibeserve.live_audits import Audited, Auditor, Start, judge_possible, judge_starts, left_out
from vibeserve.plan import Plan
from vibeserve.progress import Progress
from vibeserve.results import WINNER, Measured, Screened, metric_results
from vibeserve.rivals import SCREEN_SHARE, Rival, screened_by
from vibeserve.roles.evaluator import Entrant, Evaluator, Series
from vibeserve.roles.judge import Judge, Screening
from vibeserve.roles.workbench import Workbench
from vibeserve.schedules import AuditScope
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
    is_fresh_per_window: bool = False
    """every window on servers that were started for it"""
    num_rescored: int = 0
    """of the timed replies; 0 = all"""
    audits: AuditScope = AuditScope.cheap
    soak_s: float = 0.0
    """of scope full"""


def certify_extent(plan: Plan) -> Extent:
    """Loads, starts, pairs and windows of the plan's certification; the headline load comes first."""
    workload, schedule = plan.spec.workload, plan.schedule
    others = [name for name in workload.loads if name != workload.headline_load]
    loads = (workload.headline_load, *(others if plan.spec.evaluation.loads == "all" else ()))
    return Extent(
        loads=loads, num_starts=schedule.certify_starts, num_pairs=schedule.certify_pairs,
        window_s=schedule.certify_window_s, warmup_s=schedule.certify_warmup_s,
        screen_window_s=schedule.screen_window_s, is_fresh_per_window=schedule.is_fresh_per_window,
        num_rescored=schedule.certify_rescored, audits=schedule.audits, soak_s=schedule.soak_s,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Certification:
    """Everything that was found about one runtime. Without metrics where screening refused it."""

    verdict: Verdict
    metrics: tuple[MetricResult, ...] = ()
    golden: Golden | None = None
    num_requests: int = 0
    audits: tuple[AuditResult, ...] = ()
    not_run: tuple[str, ...] = ()
    """audits that the extent leaves out, or that cannot be held of this target"""
    spent: dict[str, float] = field(default_factory=dict)
    """seconds by activity (`core.spent`)"""
    seconds: float = 0.0
    """of all of it, waiting for devices left out"""
    num_discarded: int = 0
    """pairs of windows that the machine spoilt; they were measured again"""


@dataclass(kw_only=True)
class _Collected:
    """What the starts left."""

    series: dict[str, dict[str, list[Series]]] = field(default_factory=dict)
    """load -> entrant -> one series per start"""
    screened: list[Screened] = field(default_factory=list)
    seeds: dict[str, int] = field(default_factory=dict)
    startup_s: dict[str, list[float]] = field(default_factory=dict)
    starts: list[Start] = field(default_factory=list)
    """of the winner"""
    audited: list[Audited] = field(default_factory=list)

    def add(self, windows: dict[str, dict[str, list[Series]]]) -> None:
        """Of one start: load -> entrant -> a series per server."""
        for load, rows in windows.items():
            for name, parts in rows.items():
                self.series.setdefault(load, {}).setdefault(name, []).extend(joined(parts))

    def winner_replies(self, load: str) -> list[Record]:
        return [reply for row in self.series[load][WINNER] for reply in row.replies]

    def winner_refusals(self) -> list[Refusal]:
        """What the timing of its windows shows, each kind once."""
        found = [each for rows in self.series.values() for row in rows[WINNER] for each in row.refusals]
        return list({(each.gate, each.reason_class): each for each in found}.values())


class Certifier:
    def __init__(
        self, bench: Workbench, judge: Judge, evaluator: Evaluator, *, progress: Progress,
        auditor: Auditor | None = None,
    ) -> None:  # fmt: skip
        self._bench = bench
        self._judge = judge
        self._evaluator = evaluator
        self._progress = progress
        self._auditor = auditor or Auditor(bench, progress=progress)

    def certify(
        self, workspace: Path, *, rivals: Sequence[Rival], skipped: Sequence[BaselineValue], extent: Extent
    ) -> Certification:
        """Measure the frozen `workspace` beside `rivals`; `skipped` are rows of those that are not installed.

        Refusals are in the verdict, a winner that dies under load included; infrastructure failures, such as a dying
        rival, raise. The devices are held from the first start to the last audit: starts are measured, too.
        """
        started_s = self._bench.lease.monotonic()
        with self._bench.lease.exclusive("certification"):
            found = self._screen_and_measure(workspace, rivals, extent=extent)
        if isinstance(found, Certification):
            result = found
        else:
            screening, collected, kept = found
            result = self._conclude(
                workspace, kept, skipped, collected=collected, screening=screening, extent=extent
            )
        seconds = round(self._bench.lease.monotonic() - started_s, 1)
        return replace(result, spent=self._bench.spent.take(), seconds=seconds)

    def _screen_and_measure(
        self, workspace: Path, rivals: Sequence[Rival], *, extent: Extent
    ) -> Certification | tuple[Screening, _Collected, list[Rival]]:
        """All that was measured, or the refusal that ended it."""
        with self._progress.busy("certify", "building, starting and probing the frozen winner, thoroughly"):
            screening = self._judge.screen(workspace, name=WINNER, seed=secrets.randbits(31), is_thorough=True)
        if screening.server is None:
            verdict = Verdict(refusals=screening.refusals, checks=screening.checks)
            return Certification(verdict=verdict, not_run=left_out(AuditScope.none))
        collected = _Collected()
        try:
            kept = self._measure(workspace, screening.server, rivals, collected=collected, extent=extent)
        except ServerError as error:
            if error.name != WINNER:
                raise
            refusal = Refusal(gate="serving", reason_class=error.outcome, text=str(error))
            verdict = Verdict(refusals=(refusal,), checks=(*screening.checks, "serving"))
            return Certification(verdict=verdict, not_run=left_out(AuditScope.none))
        with self._bench.spent.on("audits"):
            collected.audited += self._auditor.run(workspace, scope=extent.audits, soak_s=extent.soak_s, name=WINNER)
        return screening, collected, kept

    def _measure(
        self, workspace: Path, server: Server, rivals: Sequence[Rival], *, collected: _Collected, extent: Extent
    ) -> list[Rival]:
        """Every start; the first one is up already. Returns the rivals that were interleaved."""
        num_servers, num_pairs = (extent.num_pairs, 1) if extent.is_fresh_per_window else (1, extent.num_pairs)
        kept: list[Rival] | None = None
        for start in range(extent.num_starts):
            windows: dict[str, dict[str, list[Series]]] = {}
            for number in range(num_servers):
                if kept is not None:
                    server = self._bench.serve(workspace, name=WINNER)
                ready_at_s = time.monotonic()
                try:
                    if kept is None:
                        server.pause()
                        kept = self._screen_out(rivals, collected=collected, extent=extent)
                    label = f"{start}.{number}" if extent.is_fresh_per_window else f"{start}"
                    drawn_at_s = self._one_start(
                        server, kept, windows=windows, collected=collected, num_pairs=num_pairs, label=label,
                        extent=extent,
                    )  # fmt: skip
                finally:
                    server.stop(drain_s=0)
                collected.starts.append(Start(startup_s=server.startup_s, ready_at_s=ready_at_s, drawn_at_s=drawn_at_s))
            collected.add(windows)
        return kept or []

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
        server = self._bench.start(rival.launch, dialect=rival.dialect, model=rival.model)
        try:
            self._bench.warm_up(server, dialect=rival.dialect, model=rival.model)
        except BaseException:
            server.stop(drain_s=0)
            raise
        return server

    def _one_start(
        self, server: Server, rivals: Sequence[Rival], *, windows: dict[str, dict[str, list[Series]]],
        collected: _Collected, num_pairs: int, label: str, extent: Extent,
    ) -> float:  # fmt: skip
        """Every load once, `num_pairs` windows each, on one start of the winner and of every rival, added to
        `windows`. Returns when the first seed was drawn."""
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
            drawn_at_s = time.monotonic()
            for load in extent.loads:
                seed = collected.seeds[f"{load}/{label}"] = secrets.randbits(31)
                self._progress.event(
                    "certify", f"start {_counted(label)} of {extent.num_starts}, load {load}: {', '.join(servers)}"
                )
                series = self._evaluator.compare(
                    entrants, load=load, pool=Pool.certification, seed=seed, num_pairs=num_pairs,
                    window_s=extent.window_s, warmup_s=extent.warmup_s,
                )  # fmt: skip
                for name, row in series.items():
                    windows.setdefault(load, {}).setdefault(name, []).append(row)
            return drawn_at_s
        finally:
            for name, each in servers.items():
                if name != WINNER:
                    each.stop(drain_s=0)

    def _conclude(
        self, workspace: Path, kept: Sequence[Rival], skipped: Sequence[BaselineValue], *, collected: _Collected,
        screening: Screening, extent: Extent,
    ) -> Certification:  # fmt: skip
        measured = Measured(
            series=collected.series, rivals=tuple(kept), screened=tuple(collected.screened), skipped=tuple(skipped),
            startup_s={name: max(values) for name, values in collected.startup_s.items()},
        )  # fmt: skip
        metrics = metric_results(measured, spec=self._bench.plan.spec, bundle=self._bench.bundle)
        audits = [*self._pure_audits(metrics, collected), *collected.audited]
        timed = [reply for load in collected.series for reply in collected.winner_replies(load)]
        replies = [*timed, *(reply for audit in audits for reply in audit.evidence)]
        with self._progress.busy("certify", "running the runtime's own tests"):
            failed = self._judge.own_tests(workspace)
        most = extent.num_rescored
        num = f"{most} of {len(replies)}" if 0 < most < len(replies) else f"{len(replies)}"
        with self._progress.busy("certify", f"re-scoring {num} replies under the f32 reference"):
            verdict, scores = self._judge.verdict(
                replies, workspace=workspace, before=screening.before, seed=secrets.randbits(31), max_replies=most,
                name=WINNER, added=[
                    *failed, *collected.winner_refusals(), *(refusal for audit in audits for refusal in audit.refusals)
                ],
            )  # fmt: skip
        verdict = replace(verdict, checks=(*verdict.checks, "own_tests", *(["audits"] if audits else [])))
        return Certification(
            verdict=verdict, metrics=metrics, num_requests=len(replies),
            golden=golden_of(collected.series, seeds=collected.seeds, scores=scores),
            audits=tuple(audit.result for audit in audits if not audit.not_applicable),
            num_discarded=sum(len(row.discarded) for rows in collected.series.values() for row in rows[WINNER]),
            not_run=(
                *_left_out(extent, hardware_kind=self._bench.plan.spec.hardware.kind),
                *screening.not_run, *(audit.not_applicable for audit in audits if audit.not_applicable),
            ),
        )  # fmt: skip

    def _pure_audits(self, metrics: Sequence[MetricResult], collected: _Collected) -> list[Audited]:
        """Those that need no server: of the numbers that are there."""
        plan = self._bench.plan
        is_here = plan.spec.host.kind == "local"
        measure = measure_bandwidth_gb_s if is_here else self._bench.host.bandwidth_gb_s

        def measure_gb_s() -> float:
            with self._bench.lease.exclusive("read bandwidth"):
                return measure(plan.engine_cpus)

        found = [
            judge_starts(collected.starts, max_s=plan.spec.evaluation.startup_max_s),
            judge_possible(plan, metrics, measure_gb_s=measure_gb_s),
        ]
        for audit in found:
            self._progress.event("audit", f"{audit.result.name} {audit.state}: {audit.result.text}")
        return found


def _left_out(extent: Extent, *, hardware_kind: str) -> tuple[str, ...]:
    windows = () if extent.is_fresh_per_window else ("fresh servers for every window",)
    return (*windows, *left_out(extent.audits, hardware_kind=hardware_kind))


def _counted(label: str) -> str:
    """`2` of start `1`, `2 (window 4)` of server `1.3`."""
    start, _, window = label.partition(".")
    return f"{int(start) + 1} (window {int(window) + 1})" if window else str(int(start) + 1)


def _entrant(rival: Rival, server: Server) -> Entrant:
    return Entrant(
        name=rival.name, server=server, dialect=rival.dialect, model=rival.model, is_ours=rival.is_ours
    )  # fmt: skip
