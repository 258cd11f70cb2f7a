"""One runtime beside the scaffold on one host: built, served, loaded and timed there, judged here; then once more with
the connection cut in the middle."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from vibeserve import spec
from vibeserve.benchmark import RealClock, paired_ratio
from vibeserve.config import compose_spec
from vibeserve.core.nouns import RatioInterval, Verdict
from vibeserve.core.paths import cache_dir, data_dir
from vibeserve.errors import InfraError, RefusedError
from vibeserve.hosts import LocalHost
from vibeserve.hosts.connection import HostLostError
from vibeserve.hosts.piped import PipedHost
from vibeserve.plan import Plan
from vibeserve.plan.unmeasured import compile_unmeasured
from vibeserve.remote.bench import RemoteBench
from vibeserve.roles.evaluator import Entrant, Evaluator, Series
from vibeserve.roles.judge import Judge, Screening
from vibeserve.roles.workbench import Workbench
from vibeserve.service import Server
from vibeserve.skills import assemble, load_skills, resolve
from vibeserve.spec import ClockKind, ProfileKind, Spec
from vibeserve.weights import ModelDir, materialise
from vibeserve.workloads import Pool

TARGET, COMPONENT = "tiny_cpu", "continuous-batching"
CANDIDATE, INCUMBENT = "candidate", "scaffold"
NUM_PAIRS, WINDOW_S, WARMUP_S = 6, 2.0, 0.5
NUM_RESCORED = 16
CUT_AFTER_S = 2.0
"""into the windows"""
GONE_S = 20.0
"""in which what ran on a host whose connection was cut has to be gone"""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What one host found."""

    verdict: Verdict
    headline: RatioInterval


@dataclass(kw_only=True)
class Trial:
    """Both runtimes in a folder, and a bench on a host."""

    folder: Path
    plan: Plan
    model: ModelDir
    open_bench: Callable[[Path], Workbench]

    def compare(self) -> Compared:
        """The candidate's verdict, and its ratio over the scaffold."""
        bench = self.open_bench(self.folder / "runs" / "compare")
        judge, metric = Judge(bench), bench.metrics[self.plan.spec.goals[0].metric]
        candidate = self._workspace(CANDIDATE, (COMPONENT,))
        screening, series = self._measured(bench, judge, candidate, self._workspace(INCUMBENT, ()))
        verdict, _ = judge.verdict(
            series[CANDIDATE].replies, workspace=candidate, before=screening.before, seed=secrets.randbits(31),
            max_replies=NUM_RESCORED, name=CANDIDATE,
        )  # fmt: skip
        headline = paired_ratio(series[CANDIDATE].windows, series[INCUMBENT].windows, metric=metric, seed=0)
        return Compared(verdict=verdict, headline=headline)

    def _measured(
        self, bench: Workbench, judge: Judge, candidate: Path, incumbent: Path
    ) -> tuple[Screening, dict[str, Series]]:
        screening = judge.screen(candidate, name=CANDIDATE, seed=secrets.randbits(31))
        if screening.server is None:
            raise RefusedError(f"the runtime is refused: {screening.refusals[0].feedback}", reasons=screening.refusals)
        servers = [screening.server]
        try:
            screening.server.pause()
            bench.build(incumbent)
            servers.append(bench.serve(incumbent, name=INCUMBENT))
            return screening, self._windows(bench, dict(zip((CANDIDATE, INCUMBENT), servers, strict=True)))
        finally:
            for server in servers:
                server.stop(drain_s=0)

    def _windows(self, bench: Workbench, servers: Mapping[str, Server]) -> dict[str, Series]:
        entrants = [
            Entrant(name=name, server=server, is_ours=True, is_judged=name == CANDIDATE)
            for name, server in servers.items()
        ]
        load = self.plan.spec.workload.headline_load
        return Evaluator(bench, RealClock()).compare(
            entrants, load=load, pool=Pool.selection, seed=secrets.randbits(31), num_pairs=NUM_PAIRS,
            window_s=WINDOW_S, warmup_s=WARMUP_S,
        )  # fmt: skip

    def cut(self, sever: Callable[[], None]) -> BaseException | None:
        """Measure again and let `sever` cut the connection meanwhile; what the measuring raised."""
        bench = self.open_bench(self.folder / "runs" / "cut")
        incumbent = self._workspace(INCUMBENT, ())
        server = bench.serve(incumbent, name=INCUMBENT)
        timer = threading.Timer(CUT_AFTER_S, sever)
        timer.start()
        try:
            self._windows(bench, {INCUMBENT: server})
        except InfraError as error:
            return error
        finally:
            timer.join()
            with contextlib.suppress(HostLostError):
                server.stop(drain_s=0)
        return None

    def _workspace(self, name: str, components: tuple[str, ...]) -> Path:
        workspace = self.folder / "workspaces" / name
        shutil.rmtree(workspace, ignore_errors=True)
        chosen = resolve(components, load_skills(data_dir("skills")))
        assemble(data_dir("templates") / "runtime/text", chosen, {}, workspace)
        return workspace


def local_trial(folder: Path) -> Trial:
    """On this machine."""
    asked, model = _spec(), _model()
    plan = compile_unmeasured(asked, facts=LocalHost().probe())
    return Trial(
        folder=folder, plan=plan, model=model,
        open_bench=lambda run_dir: Workbench.open(plan, model=model, run_dir=run_dir),
    )  # fmt: skip


def remote_trial(folder: Path, *, host: PipedHost) -> Trial:
    """On a host that is reached by pipes, planned for what it is."""
    asked, model = _spec(), _model()
    asked.sandbox = replace(asked.sandbox, tier=host.resolve_tier(spec.Tier.auto, allow_none=False))
    plan = compile_unmeasured(asked, facts=host.probe())
    return Trial(
        folder=folder, plan=plan, model=model,
        open_bench=lambda run_dir: RemoteBench.connect(plan, host=host, model=model, run_dir=run_dir),
    )  # fmt: skip


def _spec() -> Spec:
    asked = compose_spec([f"+target={TARGET}"], cwd=data_dir("targets").parent)
    asked.evaluation = replace(asked.evaluation, clock=ClockKind.real, profile=ProfileKind.off)
    asked.host = spec.Host()
    return asked


def _model() -> ModelDir:
    return materialise(_spec().model, cache=cache_dir())


def living(mark: str) -> list[int]:
    """Processes with `mark` in their environment or command line, but for this one: what a host has of ours."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            said = (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()
            if mark.encode() in said and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found


def left_after(mark: str, *, timeout_s: float = GONE_S) -> list[int]:
    """What is still there when it should have gone."""
    deadline_s = time.monotonic() + timeout_s
    while (pids := living(mark)) and time.monotonic() < deadline_s:
        time.sleep(0.2)
    return pids

