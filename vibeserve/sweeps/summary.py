"""The end of a sweep in rows: one per job, with what its artifact claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vibeserve.artifact import read_manifest
from vibeserve.core.manifest import BaselineValue, Manifest, MetricResult
from vibeserve.errors import SpecError
from vibeserve.sweeps.documents import JobState, JobStatus

COMPETENT, SAME_BYTES = "competent", "same_bytes"
EXIT_WORDS = {2: "bad spec", 3: "refused", 4: "budget", 5: "infrastructure"}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One job of the summary. A figure is absent where its artifact has none."""

    job: int
    target: str
    overrides: tuple[str, ...]
    """those in which the jobs of the sweep differ"""
    status: str
    exit_code: int
    metric: str = ""
    load: str = ""
    unit: str = ""
    value: float | None = None
    baseline: str = ""
    """the hardest competent one of the same bytes, `<name> <version>`"""
    baseline_class: str = ""
    ratio: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    level: str = ""
    plan_id: str = ""
    artifact: str = ""
    seconds: float = 0.0
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class SweepSummary:
    """Document `<sweep>/summary.json`."""

    overrides: tuple[str, ...]
    exit_code: int
    rows: tuple[Row, ...]
    error: str = ""
    """of the launcher"""
    schema_version: int = 1


def make_rows(statuses: Sequence[JobStatus], *, project: Path) -> tuple[Row, ...]:
    """One row per status, in their order."""
    shared = set.intersection(*(set(status.overrides) for status in statuses)) if statuses else set()
    return tuple(_row(status, shared=shared, project=project) for status in statuses)


def _row(status: JobStatus, *, shared: set[str], project: Path) -> Row:
    own = [o for o in status.overrides if o not in shared and not o.lstrip("+").startswith("target=")]
    blank = {
        "job": status.job, "target": status.target, "overrides": tuple(override.lstrip("+") for override in own),
        "status": status_text(status), "exit_code": status.exit_code, "plan_id": status.plan_id,
        "artifact": status.artifact, "seconds": status.seconds, "error": status.text,
    }  # fmt: skip
    manifest = _manifest(project / status.artifact) if status.artifact else None
    headline = manifest.headline() if manifest else None
    if manifest is None or headline is None:
        return Row(**blank, level=manifest.level if manifest else "")  # type: ignore[arg-type]
    baseline = quoted_baseline(headline)
    against = {
        "baseline": f"{baseline.name} {baseline.version}".strip(), "baseline_class": baseline.baseline_class,
        "ratio": baseline.ratio, "ci_low": baseline.ci_low, "ci_high": baseline.ci_high,
    } if baseline else {}  # fmt: skip
    return Row(
        **blank, **against, level=manifest.level, metric=headline.name, load=headline.load, unit=headline.unit,  # type: ignore[arg-type]
        value=headline.candidate,
    )  # fmt: skip


def _manifest(artifact: Path) -> Manifest | None:
    try:
        return read_manifest(artifact)
    except SpecError:
        # it was changed or removed since: the status still tells how the job ended
        return None


def quoted_baseline(metric: MetricResult) -> BaselineValue | None:
    """The competent baseline of the same-bytes table with the lowest ratio; where none was measured, the naive one."""
    measured = [row for row in metric.baselines if row.ratio is not None and row.precision == SAME_BYTES]
    competent = [row for row in measured if row.baseline_class == COMPETENT]
    return min(competent or measured, key=lambda row: row.ratio or 0.0, default=None)


def status_text(status: JobStatus) -> str:
    """`done`, `refused`, `died` ..."""
    if status.state is JobState.FAILED:
        return EXIT_WORDS.get(status.exit_code, str(JobState.FAILED.value))
    if status.state is JobState.PRESENT and status.exit_code:
        return f"{EXIT_WORDS.get(status.exit_code, 'failed')} before"
    return str(status.state.value)


def table(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The rows as cells, a heading first."""
    head = ("job", "target", "overrides", "status", "headline", "ratio", "artifact")
    return [head, *(_cells(row) for row in rows)]


def _cells(row: Row) -> tuple[str, ...]:
    headline = f"{row.metric} {row.load} {row.value:.4g} {row.unit}" if row.value is not None else "-"
    return (
        str(row.job), row.target, " ".join(row.overrides) or "-", row.status, headline, ratio_text(row),
        row.artifact or "-",
    )  # fmt: skip


def ratio_text(row: Row) -> str:
    """`6.02 [4.96, 6.26] transformers_cb 5.24.0`; the class where it is not a competent one."""
    if row.ratio is None:
        return "-"
    interval = f" [{row.ci_low:.2f}, {row.ci_high:.2f}]" if row.ci_low is not None and row.ci_high is not None else ""
    kind = "" if row.baseline_class == COMPETENT else f" ({row.baseline_class})"
    return f"{row.ratio:.2f}{interval} {row.baseline}{kind}"
