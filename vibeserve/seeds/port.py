"""The port of seeds: where round 0's workspace comes from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from vibeserve import spec
from vibeserve.errors import SpecError
from vibeserve.skills.card import Value


class Seed(Protocol):
    """Source of round 0. `origin` is how its lines are attributed in the manifest."""

    @property
    def origin(self) -> str: ...

    def materialise(self, destination: Path) -> None:
        """Write the complete workspace into the new folder `destination`."""
        ...


def get_seed(
    declared: spec.Seed, *, scaffold: Path, settings: Mapping[str, Value], pins: Mapping[str, Value] | None = None
) -> Seed:
    """The declared seed, or a SpecError that lists the kinds.

    `scaffold`: folder of the target's scaffold (`Workbench.scaffold`). `settings`: parameters that follow from the spec
    (`scaffold_settings`); `pins`, the user's own, win over them.
    """
    from vibeserve.seeds.scaffold import ScaffoldSeed

    kinds = {"scaffold": ScaffoldSeed}
    if declared.kind not in kinds:
        raise SpecError(f"seed.kind: unknown seed '{declared.kind}'", problems=[f"valid: {', '.join(sorted(kinds))}"])
    return kinds[declared.kind](scaffold, settings=settings, pins=pins or {})
