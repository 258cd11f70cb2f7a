"""The embedded seed: the scaffold of the target's modality, with no component."""

from __future__ import annotations

from pathlib import Path

from vibeserve import spec
from vibeserve.core.paths import data_dir
from vibeserve.errors import SpecError
from vibeserve.skills import assemble


class ScaffoldSeed:
    """`templates/runtime/<modality>/` assembled without components and with default parameters."""

    origin = "scaffold"

    def __init__(self, modality: spec.Modality) -> None:
        root = data_dir("templates") / "runtime"
        self.folder = root / modality.value
        if not self.folder.is_dir():
            available = sorted(path.name for path in root.iterdir() if path.is_dir())
            raise SpecError(
                f"model.modality: there is no scaffold for '{modality.value}'",
                problems=[f"valid: {', '.join(available)}"],
            )

    def materialise(self, destination: Path) -> None:
        assemble(self.folder, [], {}, destination)
