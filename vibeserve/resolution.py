"""From declared baselines to rivals: which are here, in which version, and what a calibration chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vibeserve.baselines import RAMP_S, WINDOW_S, PeerOptions, calibrate, check_available, get_peer
from vibeserve.baselines import Bench as CalibrationBench
from vibeserve.benchmark import window_metrics
from vibeserve.contract import Record
from vibeserve.core.documents import from_data
from vibeserve.core.manifest import BaselineValue
from vibeserve.progress import Progress
from vibeserve.rivals import SCREEN_SHARE, Rival, screened_by
from vibeserve.roles.workbench import Workbench, warm_up_requests
from vibeserve.seed_rival import seed_rival
from vibeserve.seeds import scaffold_settings
from vibeserve.spec import SEED_BASELINE, Baseline, Level
from vibeserve.workloads import Pool, longest_sequence_tokens

DEFAULT_CONCURRENCY = 16
"""of a workload with open loops only"""


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """Document: one declared baseline as it was found here."""

    name: str
    state: str
    """ready or skipped"""
    version: str = ""
    dtype: str = ""
    flags: tuple[str, ...] = ()
    speed_per_s: float = 0.0
    """rate (`rivals.screened_by`) of the calibration's window at the headline load in the chosen dtype; 0 = there was
    nothing to choose"""
    note: str = ""
    """what the calibration measured, or why it is skipped"""


def resolve_baselines(bench: Workbench, *, progress: Progress) -> list[Resolved]:
    """Check every declared baseline and calibrate those that have a choice.

    Raises MissingBaselineError for a required one that is not installed; an optional one is a skipped row.
    """
    rows = []
    for name, declared in sorted(bench.plan.spec.baseline.items()):
        row = _resolve(bench, name, declared)
        named = f"{name} {row.version}".rstrip()
        progress.event("baselines", f"{named}: {row.state}{', ' + row.note if row.note else ''}")
        rows.append(row)
    return rows


def num_interleaved(rows: Sequence[Resolved], *, declared: Mapping[str, Baseline]) -> int:
    """Rivals that certification will measure side by side, as far as calibrations tell."""
    ready = [row for row in rows if row.state == "ready"]
    best = max((row.speed_per_s for row in ready), default=0.0)
    is_slow = {row.name: 0 < row.speed_per_s < SCREEN_SHARE * best for row in ready}
    return sum(1 for row in ready if declared[row.name].required or not is_slow[row.name])


def load_rivals(bench: Workbench, documents: Sequence[Any]) -> tuple[list[Rival], list[BaselineValue]]:
    """Rivals to start, and the rows of those that are skipped."""
    rivals: list[Rival] = []
    skipped: list[BaselineValue] = []
    for document in documents:
        row = from_data(Resolved, document)
        declared = bench.plan.spec.baseline[row.name]
        if row.name == SEED_BASELINE:
            rivals.append(seed_rival(bench, declared))
        elif row.state == "ready":
            rivals.append(_rival(bench, row, declared))
        else:
            skipped.append(
                BaselineValue(
                    name=row.name, baseline_class=declared.baseline_class.value, version=row.version,
                    precision=declared.precision.value, state="skipped", note=row.note,
                )
            )  # fmt: skip
    return rivals, skipped


def peer_options(bench: Workbench, declared: Baseline, *, dtype: str, flags: Sequence[str]) -> PeerOptions:
    """What a peer is asked to serve: the plan's largest load at its longest sequences."""
    workload = bench.plan.spec.workload
    return PeerOptions(
        model_dir=bench.model.path, dtype=dtype, scratch_dir=bench.run_dir / "peers", flags=tuple(flags),
        max_concurrency=max((load.concurrency for load in workload.loads.values()), default=0) or DEFAULT_CONCURRENCY,
        max_sequence_tokens=longest_sequence_tokens(workload), shares_prefixes=workload.reuse == "prefix",
        scaffold=bench.scaffold, scaffold_parameters=scaffold_settings(bench.plan.spec, scaffold=bench.scaffold),
        allow_engines=tuple(bench.plan.spec.allow_engines),
    )  # fmt: skip


def _resolve(bench: Workbench, name: str, declared: Baseline) -> Resolved:
    if bench.plan.spec.budget.level is Level.quick and not declared.required:
        return Resolved(name=name, state="skipped", note="level quick measures required baselines only")
    available = check_available(name, declared)
    if available.version is None:
        return Resolved(name=name, state="skipped", note=available.reason)
    if name == SEED_BASELINE:
        return Resolved(name=name, state="ready", version=available.version, note="the pinned engine")
    peer = get_peer(name)
    dtypes = tuple(declared.dtypes) or peer.dtypes
    options = peer_options(bench, declared, dtype=dtypes[0] if dtypes else "", flags=declared.flags)
    calibration = _calibration_bench(bench, name)
    chosen = calibrate(name, options=options, dtypes=dtypes, bench=calibration)
    speeds = ", ".join(f"{dtype} {speed:g} {calibration.metric.unit}" for dtype, speed in chosen.speeds.items())
    note = f"{chosen.dtype}, calibrated at {chosen.load}: {speeds}" if speeds else chosen.dtype
    return Resolved(
        name=name, state="ready", version=chosen.version, dtype=chosen.dtype, flags=tuple(declared.flags), note=note,
        speed_per_s=chosen.speeds.get(chosen.dtype, 0.0),
    )  # fmt: skip


def _calibration_bench(bench: Workbench, name: str) -> CalibrationBench:
    plan = bench.plan
    bundle = bench.bundle_at(plan.spec.workload.headline_load)
    is_here = plan.spec.host.kind == "local"
    metric = screened_by(plan.spec, bench.metrics)

    def speed(records: Sequence[Record], start_s: float, end_s: float) -> float | None:
        return window_metrics(records, start_s=start_s, end_s=end_s, bundle=bundle).get(metric.name)

    return CalibrationBench(
        host=bench.host, tier=bench.tier, engine_cpus=plan.engine_cpus, client_cpus=plan.client_cpus,
        threads=plan.threads, run_dir=bench.run_dir / name, bundle=bundle, metric=metric, speed=speed,
        load=bench.load_point(plan.spec.workload.headline_load),
        requests=lambda: map(bundle.plain, bundle.workload.requests(0, Pool.visible)),
        warm_up=lambda: warm_up_requests(bundle, num=1),
        window_s=WINDOW_S * plan.spec.evaluation.window_scale,
        ramp_s=RAMP_S * plan.spec.evaluation.window_scale,
        exclusive=bench.lease.exclusive, resources=bench.resources,
        start=None if is_here else bench.start, load_session=None if is_here else bench.load_session,
    )  # fmt: skip


def _rival(bench: Workbench, row: Resolved, declared: Baseline) -> Rival:
    peer = get_peer(row.name)
    options = peer_options(bench, declared, dtype=row.dtype, flags=row.flags)
    launch = peer.launch(options)
    precision = peer.precision_facts(options)
    return Rival(
        name=row.name, baseline_class=declared.baseline_class.value, precision=declared.precision.value,
        version=row.version, flags=peer.flags(options), is_required=declared.required, launch=launch,
        dialect=peer.dialect, model=peer.model_name(options), note=row.note, weight_bits=precision.weight_bits,
        kv_bits=precision.kv_bits, calibrated_per_s=row.speed_per_s,
    )  # fmt: skip
