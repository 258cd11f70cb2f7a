"""Beside whom a packaged runtime is measured again: the baselines of its claim, or the runtime that it replaced."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

from vibeserve.audit import scan_workspace
from vibeserve.baselines import check_available
from vibeserve.core.documents import to_data
from vibeserve.core.manifest import BaselineValue, Manifest, MetricResult
from vibeserve.core.nouns import RatioInterval
from vibeserve.errors import InfraError, MissingBaselineError, RefusedError
from vibeserve.progress import Progress
from vibeserve.resolution import Resolved, load_rivals, resolve_baselines
from vibeserve.rivals import Rival
from vibeserve.roles.workbench import Workbench
from vibeserve.service import candidate_launch
from vibeserve.spec import SEED_BASELINE, ClockKind

BITS_DTYPE = {32: "f32", 16: "bf16"}
PREDECESSOR = "predecessor"


class Against(Enum):
    """What level performance measures the runtime beside."""

    AUTO = "auto"
    """the baselines of the claim that are installed; where none is, the predecessor"""
    BASELINE = "baseline"
    PREDECESSOR = "predecessor"


@dataclass(frozen=True, kw_only=True)
class Predecessor:
    """The incumbent that the packaged runtime replaced in the search: round 0, where nothing lay between."""

    workspace: Path
    commit: str
    round_number: int
    """of the round that made it"""
    recorded: RatioInterval | None
    """the packaged runtime against it, as the search measured that: windows of the selection pool"""


FindPredecessor = Callable[[Path], Predecessor | None]
"""checks it out into that folder; None where the artifact has none"""


@dataclass(frozen=True, kw_only=True)
class Opponents:
    """Who is measured beside the runtime, and what was claimed against them beyond the manifest's metrics."""

    rivals: tuple[Rival, ...] = ()
    skipped: tuple[BaselineValue, ...] = ()
    texts: tuple[str, ...] = ()
    """each of them in words"""
    recorded: tuple[MetricResult, ...] = ()
    not_run: tuple[str, ...] = ()
    """baselines of the claim that are not here"""


def opponents_of(
    bench: Workbench, manifest: Manifest, *, level: str, against: Against, find_predecessor: FindPredecessor,
    progress: Progress,
) -> Opponents:  # fmt: skip
    """Nobody at level accuracy; at level full every baseline, calibrated anew; else as `against` says.

    Baselines run in the dtype that they were certified in. Raises MissingBaselineError or InfraError where what was
    asked for is not installed, RefusedError where the packaged predecessor is not what a gate would let start.
    """
    if level == "accuracy":
        return Opponents()
    if level == "full":
        rows = resolve_baselines(bench, progress=progress)
        rivals, skipped = load_rivals(bench, [to_data(row) for row in rows])
        texts = [f"{rival.name} {rival.version} (calibrated anew)" for rival in rivals]
        return Opponents(rivals=tuple(rivals), skipped=tuple(skipped), texts=tuple(texts))
    if against is Against.PREDECESSOR:
        return _predecessor(bench, manifest, find_predecessor=find_predecessor, why="as was asked")
    found, missing = _installed(bench, manifest, is_required=against is Against.BASELINE)
    if found:
        return replace(_baselines(bench, manifest, rows=found), not_run=tuple(missing))
    why = "; ".join(missing) or "the claim names no baseline"
    if against is Against.BASELINE:
        raise InfraError(f"there is no baseline to measure against: {why}\nnext: --against predecessor")
    progress.event("verify", f"{why}: measured against the packaged predecessor")
    return _predecessor(bench, manifest, find_predecessor=find_predecessor, why=why)


def _installed(bench: Workbench, manifest: Manifest, *, is_required: bool) -> tuple[list[Resolved], list[str]]:
    """The baselines of the claim that are here, and why the others are not. `is_required`: a missing one raises."""
    headline = manifest.headline()
    found: list[Resolved] = []
    missing: list[str] = []
    for row in headline.claims() if headline else ():
        declared = bench.plan.spec.baseline.get(row.name)
        if declared is None:
            missing.append(f"{row.name}: the spec does not declare it")
            continue
        if row.name == SEED_BASELINE:
            missing.append(f"{row.name}: the pinned engine is built by a run only")
            continue
        try:
            here = check_available(row.name, declared)
        except MissingBaselineError as error:
            if is_required:
                raise
            missing.append(str(error).splitlines()[0])
            continue
        if here.version is None:
            missing.append(f"{row.name}: {here.reason}")
            continue
        dtype = BITS_DTYPE.get(int(row.weight_bits or 0), "")
        found.append(
            Resolved(
                name=row.name, state="ready", version=here.version, dtype=dtype, flags=tuple(declared.flags),
                note=row.note,
            )
        )  # fmt: skip
    return found, missing


def _baselines(bench: Workbench, manifest: Manifest, *, rows: Sequence[Resolved]) -> Opponents:
    rivals, skipped = load_rivals(bench, [to_data(row) for row in rows])
    headline = manifest.headline()
    certified = {row.name: row.version for row in (headline.claims() if headline else ())}
    texts = [_baseline_text(rival, certified=certified[rival.name]) for rival in rivals]
    # each bears a claim: none is screened out
    rivals = [replace(rival, is_required=True) for rival in rivals]
    return Opponents(rivals=tuple(rivals), skipped=tuple(skipped), texts=tuple(texts))


def _baseline_text(rival: Rival, *, certified: str) -> str:
    recorded = (
        "recorded baseline" if rival.version == certified else f"recorded baseline, certified against {certified}"
    )
    return f"{rival.name} {rival.version} ({recorded})"


def _predecessor(bench: Workbench, manifest: Manifest, *, find_predecessor: FindPredecessor, why: str) -> Opponents:
    found = find_predecessor(bench.run_dir / "workspaces" / PREDECESSOR)
    headline = manifest.headline()
    if found is None or headline is None:
        raise InfraError(
            f"{why}, and the artifact has no predecessor: no round of its search was accepted\n"
            "next: install a baseline of the claim, or --level accuracy"
        )
    refusals = scan_workspace(found.workspace, allow_engines=bench.plan.spec.allow_engines)
    if refusals:
        raise RefusedError("the packaged predecessor is refused", reasons=refusals)
    bench.build(found.workspace)
    launch = candidate_launch(
        found.workspace, model_dir=bench.model.path, allow_engines=bench.plan.spec.allow_engines, name=PREDECESSOR
    )
    rival = Rival(
        name=PREDECESSOR, baseline_class=PREDECESSOR, precision=bench.plan.spec.evaluation.precision.value,
        version=found.commit[:12], flags=(), is_required=True, launch=launch, dialect="vllm", model="", is_ours=True,
        note=f"round {found.round_number} of the search",
    )  # fmt: skip
    text = f"predecessor {found.commit[:12]} (round {found.round_number}, packaged; {why})"
    is_real = bench.plan.spec.evaluation.clock is ClockKind.real
    recorded = (_recorded(headline, rival, found.recorded),) if found.recorded is not None and is_real else ()
    return Opponents(rivals=(rival,), texts=(text,), recorded=recorded)


def _recorded(headline: MetricResult, rival: Rival, interval: RatioInterval) -> MetricResult:
    """The search's own measurement as a claim. A fake clock's is none."""
    row = BaselineValue(
        name=rival.name, baseline_class=rival.baseline_class, version=rival.version, precision=rival.precision,
        ratio=interval.ratio, ci_low=interval.ci_low, ci_high=interval.ci_high, note="measured by the search",
    )  # fmt: skip
    return replace(headline, baselines=(row,))
