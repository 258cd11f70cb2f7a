"""The port of seeds: where round 0's workspace comes from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from vibeserve import spec
from vibeserve.errors import SpecError
from vibeserve.skills.card import Value

KINDS = ("artifact", "git", "path", "scaffold")


class Seed(Protocol):
    """Source of round 0. `origin` is how its lines are attributed in the manifest."""

    @property
    def origin(self) -> str: ...

    def materialise(self, destination: Path) -> None:
        """Write the complete workspace into the new folder `destination`. RefusedError where it may not be used."""
        ...


def get_seeds(
    declared: spec.Seed, *, scaffold: Path, settings: Mapping[str, Value], pins: Mapping[str, Value] | None = None
) -> tuple[Seed, ...]:
    """The declared seed and what comes after it where the gates refuse it, best first; or a SpecError that lists the
    kinds. Only an artifact has others: its older checkpoints, the newest first, and at last the scaffold of this
    version.

    `scaffold`: folder of the target's scaffold (`Workbench.scaffold`). `settings`: parameters that follow from the spec
    (`scaffold_settings`); `pins`, the user's own, win over them.
    """
    from vibeserve.seeds.artifact import artifact_seeds
    from vibeserve.seeds.engine import EngineSeed
    from vibeserve.seeds.folder import FolderSeed
    from vibeserve.seeds.scaffold import ScaffoldSeed

    plain = ScaffoldSeed(scaffold, settings=settings, pins=pins or {})
    match declared.kind:
        case "scaffold":
            return (plain,)
        case "artifact":
            return (*artifact_seeds(Path(declared.path)), plain)
        case "path":
            return (FolderSeed(Path(declared.path)),)
        case "git":
            return (EngineSeed(declared),)
    raise SpecError(f"seed.kind: unknown seed '{declared.kind}'", problems=[f"valid: {', '.join(KINDS)}"])


def get_seed(
    declared: spec.Seed, *, scaffold: Path, settings: Mapping[str, Value], pins: Mapping[str, Value] | None = None
) -> Seed:
    """The first of `get_seeds`."""
    return get_seeds(declared, scaffold=scaffold, settings=settings, pins=pins)[0]
