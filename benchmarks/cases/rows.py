"""From artifacts to rows: what was measured beside every peer, and each reach with its answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.cases.declared import Case, Reach
from benchmarks.cases.reading import Certified, Found
from vibeserve.core.manifest import BaselineValue, MetricResult
from vibeserve.core.nouns import Role


@dataclass(frozen=True, kw_only=True)
class Row:
    """Ours beside one peer at one load. `state` is the peer's: measured, screened or skipped."""

    case: str
    target: str
    metric: str
    unit: str
    role: str
    load: str
    precision: str
    level: str
    authorship: str
    baseline_class: str
    ours: float
    peer: str
    peer_version: str
    peer_flags: tuple[str, ...]
    peer_value: float | None
    ratio: float | None
    ci_low: float | None
    ci_high: float | None
    roofline_share: float | None
    state: str
    note: str
    artifact: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A reach at one load. `met` is None where it was not measured; then `why` and `command` say what is missing."""

    case: str
    target: str
    metric: str
    load: str
    against: str
    precision: str
    min_ratio: float
    peer: str = ""
    """the hardest one"""
    ratio: float | None = None
    ci_low: float | None = None
    met: bool | None = None
    why: str = ""
    command: str = ""
    artifact: str = ""


def rows_of(case: Case, found: Found, *, root: Path) -> list[Row]:
    """Every headline and guard, and what a reach is about; of each metric and load the first artifact that has it."""
    rows: list[Row] = []
    seen: set[tuple[str, str, str]] = set()
    for certified in found.artifacts:
        for result in certified.manifest.metrics:
            key = (result.name, result.load, certified.precision)
            is_shown = result.role is not Role.DIAGNOSTIC or result.name in case.metrics
            if is_shown and key not in seen:
                seen.add(key)
                rows += [_row(case, certified, result, peer, root=root) for peer in result.baselines]
    return rows


def answers_of(case: Case, found: Found, *, root: Path) -> list[Answer]:
    """Every reach of the case, load by load."""
    return [
        _answer(case, reach, load, found, root=root)
        for reach in case.reaches
        for load in _loads(reach, found.artifacts)
    ]


def _row(case: Case, certified: Certified, result: MetricResult, peer: BaselineValue, *, root: Path) -> Row:
    manifest = certified.manifest
    return Row(
        case=case.letter, target=case.target, metric=result.name, unit=result.unit, role=result.role.value,
        load=result.load, precision=peer.precision, level=manifest.level, authorship=manifest.heading,
        baseline_class=peer.baseline_class, ours=result.candidate, peer=peer.name, peer_version=peer.version,
        peer_flags=peer.flags, peer_value=peer.value, ratio=peer.ratio, ci_low=peer.ci_low, ci_high=peer.ci_high,
        roofline_share=certified.roofline_share(result), state=peer.state, note=peer.note,
        artifact=_named(certified.path, root),
    )  # fmt: skip


def _loads(reach: Reach, artifacts: Sequence[Certified]) -> list[str]:
    """The measured loads that it is about, and those that it stands for beside them."""
    measured = {row.load for certified in artifacts for row in certified.manifest.metrics if reach.holds(row.load)}
    declared = reach.loads or (reach.load,)
    # whoever measured other rates than those that are declared here has measured rates
    return sorted(measured) if measured and reach.load.endswith("*") else list(declared)


def _answer(case: Case, reach: Reach, load: str, found: Found, *, root: Path) -> Answer:
    about = Answer(
        case=case.letter, target=case.target, metric=reach.metric, load=load, against=reach.against,
        precision=reach.precision, min_ratio=reach.min_ratio, command=reach.command,
    )  # fmt: skip
    why = "no certified artifact" if not found.artifacts else f"no certified artifact has {reach.metric} at {load}"
    for certified, result in _results(reach, load, found.artifacts):
        peers = [peer for peer in result.baselines if _is_against(peer, reach)]
        hardest = min((peer for peer in peers if peer.ratio is not None), key=_ratio, default=None)
        if hardest is not None:
            return _answered(about, certified, peers, hardest, root=root)
        told = "; ".join(f"{peer.name}: {peer.state}{f', {peer.note}' if peer.note else ''}" for peer in peers)
        why = told or f"{certified.path.name} declares no peer that it is against"
    return replace(about, why=why)


def _results(reach: Reach, load: str, artifacts: Sequence[Certified]) -> Iterator[tuple[Certified, MetricResult]]:
    """Rows of the metric at the load; first of artifacts whose search was free to do what the reach allows."""
    for certified in sorted(artifacts, key=lambda each: each.precision != reach.precision):
        # what changed the bits of its weights may not be held against peers of the same bytes
        if reach.precision == "any" or certified.precision == "same_bytes":
            for result in certified.manifest.metrics:
                if (result.name, result.load) == (reach.metric, load):
                    yield certified, result


def _is_against(peer: BaselineValue, reach: Reach) -> bool:
    return reach.against in (peer.name, peer.baseline_class) and peer.precision == reach.precision


def _answered(
    about: Answer, certified: Certified, peers: Sequence[BaselineValue], hardest: BaselineValue, *, root: Path
) -> Answer:
    """Met where the hardest peer's ratio reaches it and, above 1, the interval lies above 1; a measured peer without a
    ratio leaves it open, as it does a goal."""
    assert hardest.ratio is not None
    is_sure = about.min_ratio <= 1.0 or (hardest.ci_low is not None and hardest.ci_low > 1.0)
    is_complete = all(peer.ratio is not None for peer in peers if peer.state == "measured")
    absent = "; ".join(f"{peer.name} was not: {peer.note}" for peer in peers if peer.state == "skipped")
    return replace(
        about, peer=hardest.name, ratio=hardest.ratio, ci_low=hardest.ci_low, why=absent,
        met=hardest.ratio >= about.min_ratio and is_sure and is_complete, command="",
        artifact=_named(certified.path, root),
    )  # fmt: skip


def _ratio(peer: BaselineValue) -> float:
    return peer.ratio or 0.0


def _named(path: Path, root: Path) -> str:
    """`artifacts/TARGET/PLAN_ID`, whatever `root` is called."""
    return "/".join((root.name, *path.relative_to(root.resolve()).parts))
