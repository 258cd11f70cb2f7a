"""`vibeserve check --deep`: a target's reference, scaffold and faults, each tried for real, in minutes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from vibeserve.accuracy import judge_records
from vibeserve.accuracy.faults import FaultResult, try_faults
from vibeserve.client import LoadSession
from vibeserve.config.host_options import configured_hosts
from vibeserve.contract import Pool, Record
from vibeserve.core.nouns import LoadPoint, Refusal
from vibeserve.core.paths import cache_dir, lease_dir
from vibeserve.errors import ContractError, SpecError
from vibeserve.hardware import probe
from vibeserve.lease import DeviceLease, Lease, devices_of
from vibeserve.modalities import bundle_ref
from vibeserve.plan import Plan
from vibeserve.plan.placement import refuse_obstacles
from vibeserve.plan.unmeasured import compile_unmeasured
from vibeserve.progress import Progress
from vibeserve.roles.judge import Judge
from vibeserve.roles.workbench import Workbench
from vibeserve.seeds import get_seed, scaffold_settings
from vibeserve.service import Server
from vibeserve.spec import Spec
from vibeserve.weights import ModelDir, materialise

NUM_REQUESTS = 8
REQUESTS_TIMEOUT_S = 120.0
SEED = 1
MAX_DETAILS = 7
"""lines of one refusal that are shown below its first"""
STEPS = ("model", "reference", "scaffold", "replies", "faults")


@dataclass(frozen=True, kw_only=True)
class DeepStep:
    """One part of the target that was tried."""

    name: str
    is_ok: bool
    seconds: float
    text: str
    """one line: what was found"""
    details: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        yield f"{self.name:9}  {'ok' if self.is_ok else 'FAILED':6}  {self.seconds:5.1f} s  {self.text}"
        yield from (f"    {detail}" for detail in self.details)


@dataclass(frozen=True, kw_only=True)
class DeepCheck:
    """All of them. What comes after a failure that it needs is left out and named in `not_run`."""

    name: str
    steps: tuple[DeepStep, ...]
    not_run: tuple[str, ...] = ()
    seconds: float = 0.0
    schema_version: int = 1

    @property
    def is_ok(self) -> bool:
        return not self.not_run and all(step.is_ok for step in self.steps)


@dataclass(kw_only=True)
class _Trial:
    """One run over the steps."""

    spec: Spec
    folder: Path
    say: Callable[[DeepStep], None]
    lease: Lease
    steps: list[DeepStep] = field(default_factory=list)

    def step(self, name: str, body: Callable[[], tuple[bool, str, Sequence[str]]]) -> bool:
        """Run one; what the target's own files raise is its failure, what the machine does passes."""
        started_s = self.lease.monotonic()
        try:
            with self.lease.shared(f"check --deep, {name}"):
                is_ok, text, details = body()
        except (ContractError, SpecError) as error:
            first, *rest = str(error).splitlines()
            is_ok, text, details = False, first, rest
        seconds = round(self.lease.monotonic() - started_s, 1)
        step = DeepStep(name=name, is_ok=is_ok, seconds=seconds, text=text, details=tuple(details))
        self.steps.append(step)
        self.say(step)
        return is_ok


def check_deeply(spec: Spec, *, say: Callable[[DeepStep], None], progress: Progress) -> DeepCheck:
    """Load and ask the reference, serve the scaffold behind the wall, judge some of its replies, try the faults.

    `say` gets every step when it is done; `progress` hears of waiting for a device that another run measures on, which
    no seconds count. Raises SpecError where the target cannot be planned, InfraError for what the machine lacks.
    """
    facts = probe()
    plan = compile_unmeasured(spec, facts=facts, hosts=configured_hosts(Path.cwd()))
    refuse_obstacles(plan)
    run = f"check-{spec.target.name}-{os.getpid()}"
    lease = DeviceLease(devices_of(plan.spec.hardware, facts), root=lease_dir(), run=run, progress=progress)
    started_s = lease.monotonic()
    with tempfile.TemporaryDirectory(prefix="vibeserve-deep-") as folder:
        trial = _Trial(spec=plan.spec, folder=Path(folder), say=say, lease=lease)
        _run(trial, plan)
    done = [step.name for step in trial.steps]
    return DeepCheck(
        name=spec.target.name, steps=tuple(trial.steps), not_run=tuple(name for name in STEPS if name not in done),
        seconds=round(lease.monotonic() - started_s, 1),
    )  # fmt: skip


def _run(trial: _Trial, plan: Plan) -> None:
    models: list[ModelDir] = []

    def model() -> tuple[bool, str, Sequence[str]]:
        folder = trial.spec.target.folder_of(trial.spec.model.source.path)
        found = materialise(trial.spec.model, cache=cache_dir(), target_dir=folder)
        models.append(found)
        counted = f"{found.num_parameters:,} parameters" if found.num_parameters else "files"
        return True, f"{counted} in {found.path}", ()

    if not trial.step("model", model):
        return
    bundle = bundle_ref(trial.spec, model_dir=models[0].path)
    threads = probe().num_cpus

    def reference() -> tuple[bool, str, Sequence[str]]:
        results = try_faults(
            bundle, num_threads=threads, run_dir=trial.folder / "reference", only=("reference_output",)
        )
        return _told(results, "loads, answers, and its own answers pass the check")

    def faults() -> tuple[bool, str, Sequence[str]]:
        results = try_faults(bundle, num_threads=threads, run_dir=trial.folder / "faults")
        num_wrong = sum(result.is_wrong for result in results)
        return _told(results, f"{num_wrong} wrong outputs refused, {len(results) - num_wrong} right ones passed")

    if not trial.step("reference", reference):
        return
    _serve(trial, plan, model=models[0])
    trial.step("faults", faults)


def _told(results: Sequence[FaultResult], text: str) -> tuple[bool, str, Sequence[str]]:
    wrong = [result for result in results if not result.is_as_declared]
    details = [line for result in results for line in (result.line, *_reasons(result))]
    return not wrong, text if not wrong else f"{', '.join(result.name for result in wrong)}: not as declared", details


def _reasons(result: FaultResult) -> Iterator[str]:
    """Of what should have passed: why it did not."""
    if not result.is_as_declared and result.refused:
        yield from (f"  {reason}" for reason in result.reasons[:3])


def _serve(trial: _Trial, plan: Plan, *, model: ModelDir) -> None:
    """The scaffold behind the wall, and a few of its replies."""
    bench = Workbench.open(plan, model=model, run_dir=trial.folder / "bench")
    workspace = trial.folder / "scaffold"
    servers: list[Server] = []

    def scaffold() -> tuple[bool, str, Sequence[str]]:
        settings = scaffold_settings(trial.spec, scaffold=bench.scaffold)
        seed = get_seed(trial.spec.seed, scaffold=bench.scaffold, settings=settings, pins=trial.spec.search.pins)
        seed.materialise(workspace)
        screening = Judge(bench).screen(workspace, name="scaffold", seed=SEED)
        if screening.server is not None:
            servers.append(screening.server)
        text = f"tier {bench.tier.value}: {', '.join(screening.checks)}"
        return not screening.refusals, text, _texts(screening.refusals)

    try:
        if trial.step("scaffold", scaffold):
            trial.step("replies", lambda: _replies(trial, bench, servers[0]))
    finally:
        for server in servers:
            server.stop(drain_s=0)


def _replies(trial: _Trial, bench: Workbench, server: Server) -> tuple[bool, str, Sequence[str]]:
    records = _ask(bench, server)
    judged = judge_records(
        records, bundle=bench.bundle.ref, num_threads=probe().num_cpus, max_replies=0, seed=SEED,
        run_dir=trial.folder / "rescore",
    )  # fmt: skip
    figures = ", ".join(f"{name} {value:.4g}" for name, value in list(judged.figures.items())[:6])
    return not judged.refusals, f"{len(records)} requests; {figures or 'no figures'}", _texts(judged.refusals)


def _ask(bench: Workbench, server: Server) -> list[Record]:
    """A few requests through the workload's own `send`, one after the other."""
    with bench.bundle.blamed("workload"):
        requests = list(islice(bench.bundle.workload.requests(SEED, Pool.visible), NUM_REQUESTS))
    session = LoadSession(
        bundle=bench.bundle, base_url=server.base_url, dialect="vllm", model=bench.model_name(server),
        load=LoadPoint(name="deep", concurrency=1), requests=iter(requests), cpus=bench.plan.client_cpus,
        join=lambda argv: bench.host.join_argv(server.process, argv),
    )  # fmt: skip
    session.start()
    try:
        session.wait(timeout_s=REQUESTS_TIMEOUT_S)
    finally:
        records = session.stop()
    return list(records)


def _texts(refusals: Sequence[Refusal]) -> list[str]:
    """Of each what was refused, and the end of what was said about it: a log tells the cause last."""
    shown = []
    for refusal in refusals:
        first, *others = refusal.feedback.splitlines()
        shown += [first, *others[-MAX_DETAILS:]]
    return shown
