"""The port of seeds: where round 0's workspace comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from vibeserve import spec
from vibeserve.errors import SpecError


class Seed(Protocol):
    """Source of round 0. `origin` is how its lines are attributed in the manifest."""

    @property
    def origin(self) -> str: ...

    def materialise(self, destination: Path) -> None:
        """Write the complete workspace into the new folder `destination`."""
        ...


def get_seed(declared: spec.Seed, *, modality: spec.Modality) -> Seed:
    """The declared seed, or a SpecError that lists the kinds."""
    from vibeserve.seeds.scaffold import ScaffoldSeed

    kinds = {"scaffold": ScaffoldSeed}
    if declared.kind not in kinds:
        raise SpecError(f"seed.kind: unknown seed '{declared.kind}'", problems=[f"valid: {', '.join(sorted(kinds))}"])
    return kinds[declared.kind](modality)
