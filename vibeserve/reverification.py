"""A packaged runtime, judged and measured again by whoever holds the artifact."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from vibeserve.accuracy import refuse_unproven, try_faults
from vibeserve.baselines import check_available
from vibeserve.benchmark import RealClock
from vibeserve.certification import Certification, Certifier, Extent, certify_extent
from vibeserve.core.documents import to_data
from vibeserve.core.manifest import BaselineValue, Manifest, VerifyResult
from vibeserve.core.nouns import Refusal
from vibeserve.core.paths import cache_dir, lease_dir
from vibeserve.errors import RefusedError, SpecError
from vibeserve.hardware import HardwareFacts, probe
from vibeserve.lease import DeviceLease, devices_of
from vibeserve.modalities.copies import judged_by, own_code
from vibeserve.plan import Plan, refuse_obstacles
from vibeserve.plan.unmeasured import compile_unmeasured
from vibeserve.progress import Progress, QuietProgress
from vibeserve.resolution import Resolved, load_rivals, resolve_baselines
from vibeserve.results import WINNER
from vibeserve.rivals import Rival
from vibeserve.roles.evaluator import Evaluator
from vibeserve.roles.judge import Judge
from vibeserve.roles.workbench import Workbench
from vibeserve.rules import refuse_own_rules, take_contract
from vibeserve.spec import Sandbox, Spec
from vibeserve.weights import materialise

MIN_PAIRS = 6
"""pairs of a re-measurement on one start: fewer give no interval worth comparing"""
ACCURACY_PAIRS = 2
BITS_DTYPE = {32: "f32", 16: "bf16"}


def reverify(
    runtime: Path, *, spec: Spec, manifest: Manifest, level: str, progress: Progress | None = None,
    contract: Path | None = None, is_vouched: bool = False,
) -> VerifyResult:  # fmt: skip
    """Gates (level accuracy), and measurement beside the certified baselines (performance: one start; full: the
    level's).

    `runtime` is the packaged workspace; it is copied, never run in place, and always behind this machine's own wall.
    `contract` holds the target's own files, where the artifact has some; they run as this process does, and only where
    the verifier has the same target, or `is_vouched` says that the artifact is its origin's. Raises RefusedError for an
    artifact that loosens its own judgement, MissingBaselineError where a required baseline is not installed here, and
    the typed errors of the machine.
    """
    folder = Path(tempfile.mkdtemp(dir=_scratch(), prefix="verify-"))
    try:
        taken = take_contract(spec, contract=contract, is_vouched=is_vouched, destination=folder / "contract")
        return _reverify(runtime, spec=taken, manifest=manifest, level=level, folder=folder, progress=progress)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _reverify(
    runtime: Path, *, spec: Spec, manifest: Manifest, level: str, folder: Path, progress: Progress | None
) -> VerifyResult:
    facts = probe()
    refuse_own_rules(spec, manifest=manifest, plan_id=_comparable_plan_id(spec, manifest=manifest, facts=facts))
    # the wall is the verifier's: an artifact does not choose how it is confined
    plan = compile_unmeasured(replace(spec, sandbox=Sandbox()), facts=facts)
    refuse_obstacles(plan)
    progress = progress or QuietProgress()
    lease = DeviceLease(
        devices_of(plan.spec.hardware, facts), root=lease_dir(), run=f"verify of {spec.target.name}", progress=progress
    )
    target = Path(spec.target.dir) if spec.target.dir else None
    model = materialise(spec.model, cache=cache_dir(), target_dir=target)
    bench = Workbench.open(plan, model=model, run_dir=folder, lease=lease)
    progress.event("verify", judged_by(bench.bundle.ref))
    workspace = folder / "workspaces" / WINNER
    shutil.copytree(runtime, workspace)
    certifier = Certifier(bench, Judge(bench), Evaluator(bench, RealClock()), progress=progress)
    with lease.shared("verify"):
        _prove_own_check(bench, progress=progress)
        rivals, skipped = _rivals(bench, manifest, level=level, progress=progress)
        result = certifier.certify(workspace, rivals=rivals, skipped=skipped, extent=_extent(plan, level=level))
    return _answer(result, bench=bench, level=level)


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
    if level == "accuracy":
        return replace(extent, loads=headline, num_starts=1, num_pairs=ACCURACY_PAIRS)
    return replace(extent, loads=headline, num_starts=1, num_pairs=max(MIN_PAIRS, extent.num_pairs))


def _rivals(
    bench: Workbench, manifest: Manifest, *, level: str, progress: Progress
) -> tuple[list[Rival], list[BaselineValue]]:
    """The baselines that were interleaved at certification, in the dtype that they ran in; at level full calibrated
    anew."""
    if level == "accuracy":
        return [], []
    headline = manifest.headline()
    measured = {row.name: row for row in (headline.baselines if headline else ()) if row.state == "measured"}
    if level == "full":
        rows: Sequence[Resolved] = resolve_baselines(bench, progress=progress)
    else:
        rows = [
            Resolved(
                name=name, state="ready", version=row.version, dtype=BITS_DTYPE.get(int(row.weight_bits or 0), ""),
                flags=tuple(bench.plan.spec.baseline[name].flags), note=row.note,
            )
            for name, row in measured.items()
            if check_available(name, bench.plan.spec.baseline[name]).version
        ]  # fmt: skip
    return load_rivals(bench, [to_data(row) for row in rows if row.name in measured or level == "full"])


def _answer(result: Certification, *, bench: Workbench, level: str) -> VerifyResult:
    not_run = () if level == "full" else ("other starts, loads and audits of the certification's level",)
    return VerifyResult(
        level=level, reasons=result.verdict.refusals, accuracy=result.verdict.accuracy,
        metrics=() if level == "accuracy" else result.metrics, not_run=not_run, sandbox_tier=bench.tier.value,
        judged_by=judged_by(bench.bundle.ref),
        usage={"requests": float(result.num_requests)},
    )  # fmt: skip
