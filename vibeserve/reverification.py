"""A packaged runtime, judged and measured again by whoever holds the artifact."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path

from vibeserve.baselines import check_available
from vibeserve.benchmark import RealClock
from vibeserve.certification import Certification, Certifier, Extent, certify_extent
from vibeserve.core.documents import to_data
from vibeserve.core.manifest import BaselineValue, Manifest, VerifyResult
from vibeserve.core.nouns import Refusal
from vibeserve.core.paths import cache_dir
from vibeserve.errors import RefusedError
from vibeserve.hardware import HardwareFacts, probe
from vibeserve.plan import Plan, compile_plan
from vibeserve.progress import Progress, QuietProgress
from vibeserve.resolution import Resolved, load_rivals, resolve_baselines
from vibeserve.results import WINNER
from vibeserve.rivals import Rival
from vibeserve.roles.evaluator import Evaluator
from vibeserve.roles.judge import Judge
from vibeserve.roles.workbench import Workbench
from vibeserve.spec import Sandbox, Spec, Tolerances
from vibeserve.weights import materialise

MIN_PAIRS = 6
"""pairs of a re-measurement on one start: fewer give no interval worth comparing"""
ACCURACY_PAIRS = 2
BITS_DTYPE = {32: "f32", 16: "bf16"}


def reverify(
    runtime: Path, *, spec: Spec, manifest: Manifest, level: str, progress: Progress | None = None
) -> VerifyResult:
    """Gates (level accuracy), and measurement beside the certified baselines (performance: one start; full: the
    level's).

    `runtime` is the packaged workspace; it is copied, never run in place, and always behind this machine's own wall.
    Raises RefusedError for an artifact that loosens its own judgement, MissingBaselineError where a required baseline
    is not installed here, and the typed errors of the machine.
    """
    facts = probe()
    refuse_own_rules(spec, manifest=manifest, plan_id=_comparable_plan_id(spec, manifest=manifest, facts=facts))
    # the wall is the verifier's: an artifact does not choose how it is confined
    plan = compile_plan(replace(spec, sandbox=Sandbox()), facts=facts)
    folder = Path(tempfile.mkdtemp(dir=_scratch(), prefix="verify-"))
    try:
        target = Path(spec.target.dir) if spec.target.dir else None
        model = materialise(spec.model, cache=cache_dir(), target_dir=target)
        bench = Workbench.open(plan, model=model, run_dir=folder)
        workspace = folder / "workspaces" / WINNER
        shutil.copytree(runtime, workspace)
        certifier = Certifier(bench, Judge(bench), Evaluator(bench, RealClock()), progress=progress or QuietProgress())
        rivals, skipped = _rivals(bench, manifest, level=level, progress=progress or QuietProgress())
        result = certifier.certify(workspace, rivals=rivals, skipped=skipped, extent=_extent(plan, level=level))
        return _answer(result, bench=bench, level=level)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def refuse_own_rules(spec: Spec, *, manifest: Manifest, plan_id: str) -> None:
    """RefusedError where the artifact's spec is not the one of its manifest, or judges more mildly than this framework.

    `plan_id` is what this framework compiles the spec to, empty where that cannot be compared.
    """
    texts = [f"evaluation.tolerances: {text}" for text in loosened(spec.evaluation.tolerances)]
    if spec.target.name != manifest.target:
        texts.append(f"spec.yaml is of target '{spec.target.name}', manifest.json of '{manifest.target}'")
    if plan_id and plan_id != manifest.plan_id:
        texts.append(f"spec.yaml compiles to plan {plan_id}, manifest.json claims {manifest.plan_id}")
    if texts:
        reasons = [Refusal(gate="spec", reason_class="own_rules", text=text, file="spec.yaml") for text in texts]
        raise RefusedError("the artifact is judged by rules of its own\n  " + "\n  ".join(texts), reasons=reasons)


def loosened(tolerances: Tolerances) -> list[str]:
    """Every tolerance that is milder than the framework's default."""
    default = Tolerances()
    found = []
    for each in fields(Tolerances):
        value, limit = getattr(tolerances, each.name), getattr(default, each.name)
        is_milder = value < limit if each.name.endswith("_min") else value > limit
        if each.name == "logprob_share":
            is_milder = value <= 0 or value > limit
        if is_milder or value != value:
            found.append(f"{each.name} is {value}, milder than {limit}")
    return found


def _comparable_plan_id(spec: Spec, *, manifest: Manifest, facts: HardwareFacts) -> str:
    """The plan id of `spec` here; empty on other hardware or under another framework, where it differs rightly."""
    plan = compile_plan(spec, facts=facts)
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
        usage={"requests": float(result.num_requests)},
    )  # fmt: skip
