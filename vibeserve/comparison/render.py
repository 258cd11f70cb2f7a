"""A comparison as text, CSV, JSON data and an HTML page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from vibeserve.artifact import to_json_data
from vibeserve.comparison.artifacts import Compared
from vibeserve.comparison.tables import Comparison, Group, RatioRow, hardware_text
from vibeserve.core.manifest import BaselineValue

TEMPLATE = "compare.html.j2"
CSV_HEAD = (
    "artifact", "target", "plan_id", "status", "level", "hardware", "metric", "load", "unit", "value", "baseline",
    "version", "class", "precision", "baseline_value", "ratio", "ci_low", "ci_high", "state",
)  # fmt: skip


def as_text(comparison: Comparison) -> str:
    """For a terminal."""
    lines: list[str] = []
    for number, group in enumerate(comparison.groups, start=1):
        lines += [f"group {number}: {hardware_text(group.hardware)}", *_aligned(_artifact_rows(group)), ""]
        lines += [*_aligned(value_table(group)), "", *_aligned(ratio_table(group)), ""]
    return "\n".join([*lines, *(f"note: {note}" for note in comparison.notes)]) + "\n"


def as_data(comparison: Comparison) -> dict[str, Any]:
    """For `--json`."""
    groups = [
        {
            "fingerprint": group.fingerprint, "hardware": group.hardware,
            "artifacts": [_artifact_data(member) for member in group.artifacts],
            "values": to_json_data(group.values), "ratios": [_ratio_data(row) for row in group.ratios],
        }
        for group in comparison.groups
    ]  # fmt: skip
    return {"schema_version": 1, "notes": list(comparison.notes), "groups": groups}


def as_csv(comparison: Comparison) -> str:
    """One line per artifact, metric, load and baseline."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(CSV_HEAD)
    for group in comparison.groups:
        for member in group.artifacts:
            writer.writerows(_csv_rows(member))
    return stream.getvalue()


def as_html(comparison: Comparison) -> str:
    """A page that loads nothing."""
    from markupsafe import Markup

    from vibeserve.core.paths import data_dir
    from vibeserve.report.page import environment

    css = (data_dir("templates") / "report" / "report.css").read_text(encoding="utf-8")
    groups = [
        (hardware_text(group.hardware), group, value_table(group), ratio_table(group)) for group in comparison.groups
    ]
    return environment().get_template(TEMPLATE).render(css=Markup(css), groups=groups, notes=comparison.notes)


def value_table(group: Group) -> list[list[str]]:
    """Cells, a heading first; a star marks the headline."""
    labels = [member.label for member in group.artifacts]
    rows = [["metric", "load", "unit", *labels]]
    for row in group.values:
        cells = [_number(row.values.get(label), star=label in row.headline_of) for label in labels]
        rows.append([row.metric, row.load, row.unit, *cells])
    return rows


def ratio_table(group: Group) -> list[list[str]]:
    """Cells, a heading first: every artifact's ratio against its own run of the baseline."""
    labels = [member.label for member in group.artifacts]
    rows = [["ratio of", "load", "against", *labels]]
    for row in group.ratios:
        cells = [_ratio(row.values.get(label)) for label in labels]
        rows.append([row.metric, row.load, _against(row), *cells])
    return rows


def _artifact_rows(group: Group) -> list[list[str]]:
    return [
        [
            f"  {m.label}", f"{m.manifest.target} {m.manifest.plan_id}",
            f"{m.manifest.status}, level {m.manifest.level}", f"{m.model}, {m.precision}", str(m.path),
        ]
        for m in group.artifacts
    ]  # fmt: skip


def _against(row: RatioRow) -> str:
    flags = f" {' '.join(row.flags)}" if row.flags else ""
    return f"{row.baseline} {row.version}{flags} ({row.baseline_class}, {row.precision})"


def _number(value: float | None, *, star: bool = False) -> str:
    return "-" if value is None else f"{value:.4g}{'*' if star else ''}"


def _ratio(base: BaselineValue | None) -> str:
    if base is None:
        return "-"
    if base.ratio is None:
        return base.state if base.state != "measured" else "-"
    has_interval = base.ci_low is not None and base.ci_high is not None
    interval = f" [{base.ci_low:.2f}, {base.ci_high:.2f}]" if has_interval else ""
    return f"{base.ratio:.2f}{interval}" + ("" if base.state == "measured" else f" {base.state}")


def _artifact_data(member: Compared) -> dict[str, Any]:
    manifest = member.manifest
    return {
        "label": member.label, "path": str(member.path), "target": manifest.target, "plan_id": manifest.plan_id,
        "status": manifest.status, "level": manifest.level, "created_at": manifest.created_at, "model": member.model,
        "precision": member.precision, "workload": member.workload, "intact": member.is_intact,
        "not_run": list(manifest.not_run),
    }  # fmt: skip


def _ratio_data(row: RatioRow) -> dict[str, Any]:
    """`values` keep what differs between artifacts only: the rest is the row's."""
    kept = ("value", "ratio", "ci_low", "ci_high", "state", "note")
    values = {label: {name: getattr(base, name) for name in kept} for label, base in row.values.items()}
    return {
        "metric": row.metric, "load": row.load, "baseline": row.baseline, "version": row.version,
        "flags": list(row.flags), "class": row.baseline_class, "precision": row.precision, "values": values,
    }  # fmt: skip


def _csv_rows(member: Compared) -> Iterator[list[Any]]:
    manifest = member.manifest
    head = [member.label, manifest.target, manifest.plan_id, manifest.status, manifest.level, member.fingerprint]
    for metric in manifest.metrics:
        figures = [*head, metric.name, metric.load, metric.unit, metric.candidate]
        if not metric.baselines:
            yield [*figures, *([""] * (len(CSV_HEAD) - len(figures)))]
        for base in metric.baselines:
            ratio = [base.value, base.ratio, base.ci_low, base.ci_high]
            named = [base.name, base.version, base.baseline_class, base.precision]
            yield [*figures, *named, *("" if item is None else item for item in ratio), base.state]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
