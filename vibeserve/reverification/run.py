"""A packaged runtime, judged and measured again by whoever holds the artifact.

Fresh throughout: a copy in a scratch folder of its own, `build/` made there, the verifier's own wall, seeds that nobody
had before, compile caches of the peers below the scratch folder. Only the model's files come from the cache, checked
against their digests.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from vibeserve.accuracy import refuse_unproven, try_faults
from vibeserve.benchmark import RealClock
from vibeserve.benchmark.environment import MachineReading, environment, read_machine
from vibeserve.certification import Certification, Certifier, Extent, certify_extent
from vibeserve.core.documents import BUILD_OUTPUT
from vibeserve.core.manifest import Manifest, VerifyResult
from vibeserve.core.nouns import Refusal
from vibeserve.core.paths import cache_dir, lease_dir
from vibeserve.errors import InfraError, RefusedError, SpecError
from vibeserve.hardware import HardwareFacts, probe
from vibeserve.lease import DeviceLease, devices_of
from vibeserve.modalities.copies import judged_by, own_code
from vibeserve.plan import Plan, refuse_obstacles
from vibeserve.plan.unmeasured import compile_unmeasured
from vibeserve.progress import Progress, QuietProgress
from vibeserve.results import WINNER
from vibeserve.reverification.opponents import Against, FindPredecessor, Opponents, opponents_of
from vibeserve.roles.evaluator import Evaluator
from vibeserve.roles.judge import Judge
from vibeserve.roles.workbench import Workbench
from vibeserve.rules import refuse_own_rules, take_contract
from vibeserve.schedules import AuditScope
from vibeserve.spec import Host, Sandbox, Spec
from vibeserve.weights import materialise

MIN_PAIRS = 6
"""pairs of a re-measurement on one start: fewer give no interval worth comparing"""
ACCURACY_PAIRS = 2


def no_predecessor(folder: Path) -> None:
    """An artifact without one."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What is to be found out."""

    level: str
    """accuracy, performance or full"""
    against: Against = Against.AUTO
    find_predecessor: FindPredecessor = no_predecessor
    is_vouched: bool = False
    """the artifact is its origin's: the rules that it brings are its origin's, too"""


def reverify(
    runtime: Path, *, spec: Spec, manifest: Manifest, request: Request, contract: Path | None = None,
    progress: Progress | None = None,
) -> VerifyResult:  # fmt: skip
    """Gates (level accuracy: no other server is started), and measurement (performance: one start beside the baselines
    of the claim or the packaged predecessor; full: the certification of the artifact's level again).

    `runtime` is the packaged workspace; it is copied, never run in place, and always behind this machine's own wall.
    `contract` holds the target's own files, where the artifact has some; they run as this process does, and only where
    the verifier has the same target, or somebody vouches for them. Raises RefusedError for an artifact that loosens its
    own judgement, InfraError where this machine cannot run it, MissingBaselineError where a baseline that was asked for
    is not installed here, and the typed errors of the machine.
    """
    folder = Path(tempfile.mkdtemp(dir=_scratch(), prefix="verify-"))
    try:
        taken = take_contract(spec, contract=contract, is_vouched=request.is_vouched, destination=folder / "contract")
        return _reverify(runtime, spec=taken, manifest=manifest, request=request, folder=folder, progress=progress)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reverify(
    runtime: Path, *, spec: Spec, manifest: Manifest, request: Request, folder: Path, progress: Progress | None
) -> VerifyResult:
    facts = probe()
    with _needed_here(spec):
        refuse_own_rules(spec, manifest=manifest, plan_id=_comparable_plan_id(spec, manifest=manifest, facts=facts))
        # the wall is the verifier's: an artifact does not choose how it is confined
        plan = compile_unmeasured(replace(spec, sandbox=Sandbox(), host=Host()), facts=facts)
        refuse_obstacles(_without_peers(plan) if request.level != "full" else plan)
    progress = progress or QuietProgress()
    lease = DeviceLease(
        devices_of(plan.spec.hardware, facts), root=lease_dir(), run=f"verify of {spec.target.name}", progress=progress
    )
    target = Path(spec.target.dir) if spec.target.dir else None
    model = materialise(spec.model, cache=cache_dir(), target_dir=target)
    bench = Workbench.open(plan, model=model, run_dir=folder, lease=lease)
    progress.event("verify", judged_by(bench.bundle.ref))
    evaluator = Evaluator(bench, RealClock(), progress=progress)
    certifier = Certifier(bench, Judge(bench), evaluator, progress=progress)
    with lease.shared("verify"):
        _prove_own_check(bench, progress=progress)
        return measure_again(bench, certifier, runtime, manifest=manifest, request=request, progress=progress)


def measure_again(
    bench: Workbench, certifier: Certifier, runtime: Path, *, manifest: Manifest, request: Request, progress: Progress
) -> VerifyResult:
    """Certify a copy of `runtime` at the extent of the requested level, beside those that it asks for."""
    workspace = fresh_copy(runtime, bench.run_dir / "workspaces" / WINNER)
    opponents = opponents_of(
        bench, manifest, level=request.level, against=request.against, find_predecessor=request.find_predecessor,
        progress=progress,
    )  # fmt: skip
    before = read_machine()
    result = certifier.certify(
        workspace, rivals=opponents.rivals, skipped=opponents.skipped, extent=_extent(bench.plan, level=request.level)
    )
    return _answer(result, bench=bench, level=request.level, opponents=opponents, before=before, workspace=workspace)


def fresh_copy(runtime: Path, workspace: Path) -> Path:
    """A copy of the packaged workspace without build output: what is measured was compiled here."""

    def build_output(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if name == BUILD_OUTPUT and Path(folder) == runtime]

    shutil.copytree(runtime, workspace, ignore=build_output)
    return workspace


@contextmanager
def _needed_here(spec: Spec) -> Iterator[None]:
    """What this machine or installation lacks is not the artifact's fault: it was declared and compiled elsewhere."""
    try:
        yield
    except SpecError as error:
        text = f"the plan of '{spec.target.name}' does not run on this machine: {error}"
        raise InfraError(f"{text}\nnext: verify it where it was certified, or --level bytes") from error


def _without_peers(plan: Plan) -> Plan:
    return replace(plan, obstacles=tuple(obstacle for obstacle in plan.obstacles if obstacle.kind != "baseline"))


def _prove_own_check(bench: Workbench, *, progress: Progress) -> None:
    """A check that an artifact brings must refuse wrong outputs here, too. RefusedError where it does not."""
    if not own_code(bench.bundle.ref):
        return
    with progress.busy("verify", "trying the faults of the target's own check"):
        results = try_faults(
            bench.bundle.ref, num_threads=bench.host.probe().num_cpus, run_dir=bench.run_dir / "reference"
        )
    try:
        refuse_unproven(results)
    except SpecError as error:
        reasons = [Refusal(gate="reference", reason_class="unproven_check", text=text) for text in error.problems]
        raise RefusedError(str(error), reasons=reasons) from error


def _comparable_plan_id(spec: Spec, *, manifest: Manifest, facts: HardwareFacts) -> str:
    """The plan id of `spec` here; empty on other hardware or under another framework, where it differs rightly."""
    plan = compile_unmeasured(spec, facts=facts)
    same = all(plan.digests.get(name) == manifest.digests.get(name) for name in ("framework", "hardware", "skills"))
    return plan.plan_id if same else ""


def _scratch() -> Path:
    folder = cache_dir() / "verify"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _extent(plan: Plan, *, level: str) -> Extent:
    extent = certify_extent(plan)
    if level == "full":
        return extent
    headline = extent.loads[:1]
    short = replace(
        extent, loads=headline, num_starts=1, audits=AuditScope.none, soak_s=0.0, is_fresh_per_window=False
    )  # fmt: skip
    return replace(short, num_pairs=ACCURACY_PAIRS if level == "accuracy" else max(MIN_PAIRS, extent.num_pairs))


def _answer(
    result: Certification, *, bench: Workbench, level: str, opponents: Opponents, before: MachineReading,
    workspace: Path,
) -> VerifyResult:  # fmt: skip
    not_run = () if level == "full" else ("other starts and loads of the certification's level",)
    seen = environment(
        bench.plan, facts=bench.host.probe(), before=before, after=read_machine(), sandbox_tier=bench.tier.value
    )
    return VerifyResult(
        level=level, reasons=result.verdict.refusals, accuracy=result.verdict.accuracy, checks=result.verdict.checks,
        metrics=() if level == "accuracy" else result.metrics, not_run=(*not_run, *opponents.not_run, *result.not_run),
        sandbox_tier=bench.tier.value, judged_by=judged_by(bench.bundle.ref), against=opponents.texts,
        recorded=opponents.recorded, seeds=dict(result.golden.seeds) if result.golden else {},
        built=_built(workspace), usage={"requests": float(result.num_requests)}, environment=seen,
        audits=result.audits,
    )  # fmt: skip


def _built(workspace: Path) -> tuple[str, ...]:
    output = workspace / BUILD_OUTPUT
    return tuple(sorted(path.relative_to(workspace).as_posix() for path in output.rglob("*") if path.is_file()))
