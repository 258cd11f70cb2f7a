"""Groups of artifacts from one kind of machine, and the rows in which their numbers may stand side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from vibeserve.comparison.artifacts import Compared
from vibeserve.core.environment import comparable
from vibeserve.core.manifest import BaselineValue, MetricResult
from vibeserve.core.nouns import Direction, Role

RUNS_NOTE = (
    "Numbers of different runs are not comparable finer than 2x, on one machine and of one runtime: no ratio between "
    "artifacts is formed. Each ratio is an artifact against a baseline inside its own run; ratios against the same "
    "version of a baseline stand in one row."
)


@dataclass(frozen=True, kw_only=True)
class ValueRow:
    """One metric at one load. `values` by label; an artifact without a value is not in it."""

    metric: str
    load: str
    unit: str
    direction: Direction
    headline_of: tuple[str, ...]
    """labels of the artifacts whose headline it is"""
    values: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class RatioRow:
    """One metric at one load against one baseline, in exactly one version with one set of flags."""

    metric: str
    load: str
    baseline: str
    version: str
    flags: tuple[str, ...]
    baseline_class: str
    precision: str
    values: dict[str, BaselineValue]
    """by label: the baseline's own value, and the artifact's ratio against it (> 1 is better)"""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Artifacts that were certified on the same hardware."""

    fingerprint: str
    hardware: dict[str, Any]
    artifacts: tuple[Compared, ...]
    values: tuple[ValueRow, ...]
    ratios: tuple[RatioRow, ...]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    groups: tuple[Group, ...]
    notes: tuple[str, ...]


def compare(artifacts: Sequence[Compared]) -> Comparison:
    """Group by hardware, one row per metric and load; says what must not be read into it."""
    by_hardware: dict[str, list[Compared]] = {}
    for artifact in artifacts:
        by_hardware.setdefault(artifact.fingerprint, []).append(artifact)
    groups = tuple(_group(members) for members in by_hardware.values())
    return Comparison(groups=groups, notes=(RUNS_NOTE, *_notes(groups)))


def _group(members: Sequence[Compared]) -> Group:
    return Group(
        fingerprint=members[0].fingerprint, hardware=members[0].manifest.hardware, artifacts=tuple(members),
        values=tuple(_value_rows(members)), ratios=tuple(_ratio_rows(members)),
    )  # fmt: skip


def _metrics(members: Sequence[Compared]) -> Iterator[tuple[str, str, dict[str, MetricResult]]]:
    """(metric, load, label -> result) in the order of the manifests; what was counted otherwise stands apart."""
    found: dict[tuple[str, str], list[dict[str, MetricResult]]] = {}
    seen = {member.label: member.manifest.environment for member in members}
    for member in members:
        for metric in member.manifest.metrics:
            rows = found.setdefault((metric.name, metric.load), [])
            alike = (row for row in rows if comparable(metric.name, seen[member.label], seen[next(iter(row))]))
            row = next(alike, None)
            if row is None:
                rows.append({member.label: metric})
            else:
                row[member.label] = metric
    for (name, load), rows in found.items():
        for row in rows:
            yield name, load, row


def _value_rows(members: Sequence[Compared]) -> Iterator[ValueRow]:
    for name, load, results in _metrics(members):
        first = next(iter(results.values()))
        yield ValueRow(
            metric=name, load=load, unit=first.unit, direction=first.direction,
            headline_of=tuple(label for label, result in results.items() if result.role is Role.HEADLINE),
            values={label: result.candidate for label, result in results.items()},
        )  # fmt: skip


def _ratio_rows(members: Sequence[Compared]) -> Iterator[RatioRow]:
    for name, load, results in _metrics(members):
        rows: dict[tuple[Any, ...], dict[str, BaselineValue]] = {}
        for label, result in results.items():
            for base in result.baselines:
                key = (base.name, base.version, base.flags, base.baseline_class, base.precision)
                rows.setdefault(key, {})[label] = base
        for (baseline, version, flags, baseline_class, precision), values in rows.items():
            yield RatioRow(
                metric=name, load=load, baseline=baseline, version=version, flags=flags,
                baseline_class=baseline_class, precision=precision, values=values,
            )  # fmt: skip


def hardware_text(hardware: dict[str, Any]) -> str:
    """One line for a hardware identity."""
    gpus = [str(gpu.get("name", "GPU")) for gpu in hardware.get("gpus", [])]
    parts = [str(hardware.get("cpu_model", "unknown CPU")), f"{hardware.get('num_cpus', '?')} CPUs"]
    parts.append(f"{hardware.get('memory_gib', '?')} GiB")
    parts += [f"{gpus.count(name)} x {name}" for name in dict.fromkeys(gpus)]
    return ", ".join(parts)


def _notes(groups: Sequence[Group]) -> Iterator[str]:
    if len(groups) > 1:
        yield (
            f"The artifacts were certified on {len(groups)} kinds of hardware: each group stands alone, and nothing of "
            "one is set beside another."
        )
    for group in groups:
        if len({member.serves for member in group.artifacts}) > 1:
            names = _labels(group.artifacts)
            yield f"{names} do not serve the same model under the same workload: their numbers answer other questions."
        ways = [member.manifest.environment for member in group.artifacts]
        if not all(comparable("peak_memory", first, second) for first in ways for second in ways):
            yield f"{_labels(group.artifacts)}: peak_memory was not counted in one way, so it stands in several rows."
        versions = {member.manifest.digests.get("framework", "") for member in group.artifacts}
        if len(versions) > 1:
            yield f"{_labels(group.artifacts)} were measured by different versions of VibeServe."
    every = [member for group in groups for member in group.artifacts]
    yield from _note(every, "level quick, whose numbers are not quoted outside their run", level="quick")
    yield from _note(every, "not certified", status="uncertified")
    changed = [member for member in every if not member.is_intact]
    if changed:
        yield f"{_labels(changed)}: changed after packaging, so its claims have no cover (vibeserve verify PATH)."


def _note(members: Sequence[Compared], text: str, **facts: str) -> Iterator[str]:
    fitting = [m for m in members if all(getattr(m.manifest, name) == value for name, value in facts.items())]
    if fitting:
        yield f"{_labels(fitting)}: {text}."


def _labels(members: Sequence[Compared]) -> str:
    return ", ".join(member.label for member in members)
