"""Certified artifacts of a target: the latest one, and the others of the same machine for what it has not measured."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vibeserve.artifact import read_manifest, read_spec, verify_bytes
from vibeserve.core.manifest import Manifest, MetricResult
from vibeserve.core.nouns import Direction
from vibeserve.errors import SpecError

LATEST = "latest"
QUOTED = ("standard", "full")
"""levels whose numbers may be quoted"""


@dataclass(frozen=True, kw_only=True)
class Certified:
    """One artifact whose numbers may be quoted."""

    path: Path
    manifest: Manifest
    precision: str
    """what its search was free to do: same_bytes or any"""
    ceilings: dict[tuple[str, str], float]
    """by metric and load, in the metric's unit"""

    def roofline_share(self, row: MetricResult) -> float | None:
        """Of the best that the plan's roofline allows, 1 being all of it; None where the plan has no bound."""
        ceiling = self.ceilings.get((row.name, row.load))
        if row.roofline_share is not None or not ceiling or not row.candidate:
            return row.roofline_share
        return row.candidate / ceiling if row.direction is Direction.MAX else ceiling / row.candidate


@dataclass(frozen=True, kw_only=True)
class Found:
    """What a target's folder holds. `passed_over` says of every other artifact why it is not quoted."""

    artifacts: tuple[Certified, ...]
    passed_over: tuple[str, ...]


def read_target(folder: Path) -> Found:
    """Artifacts below `folder`, the latest first, then the newest; only those of the first one's hardware."""
    artifacts: list[Certified] = []
    passed_over: list[str] = []
    for path in _folders(folder):
        try:
            certified = _read(path)
        except SpecError as error:
            passed_over.append(str(error).splitlines()[0])
            continue
        if artifacts and certified.manifest.hardware != artifacts[0].manifest.hardware:
            passed_over.append(f"{path.name}: certified on other hardware")
            continue
        artifacts.append(certified)
    latest = artifacts[:1]
    others = sorted(artifacts[1:], key=lambda each: each.manifest.created_at, reverse=True)
    return Found(artifacts=(*latest, *others), passed_over=tuple(passed_over))


def _folders(folder: Path) -> Iterator[Path]:
    """`latest` first, each one once."""
    if not folder.is_dir():
        return
    seen = set()
    for path in (folder / LATEST, *sorted(folder.iterdir(), reverse=True)):
        real = path.resolve()
        if real not in seen and (real / "manifest.json").is_file():
            seen.add(real)
            yield real


def _read(path: Path) -> Certified:
    """SpecError where its numbers may not be quoted."""
    manifest = read_manifest(path)
    if manifest.status != "certified":
        raise SpecError(f"{path.name}: {manifest.status}")
    if manifest.level not in QUOTED:
        raise SpecError(f"{path.name}: level {manifest.level}, which is not quoted")
    faults = verify_bytes(path)
    if faults:
        raise SpecError(f"{path.name}: not as it was packaged: {faults[0].text}")
    return Certified(
        path=path, manifest=manifest, precision=read_spec(path).evaluation.precision.value, ceilings=_ceilings(path)
    )


def _ceilings(path: Path) -> dict[tuple[str, str], float]:
    try:
        plan = json.loads((path / "plan.json").read_text(encoding="utf-8"))
        return {(each["metric"], each["load"]): float(each["value"]) for each in plan.get("ceilings", ())}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpecError(f"{path.name}: plan.json has no ceilings that can be read: {error}") from error
