"""The embedded seed: the target's scaffold, with no component."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vibeserve.core.paths import data_dir
from vibeserve.skills import assemble, declared_parameters, load_scaffold, load_skills, pinned_values
from vibeserve.skills.card import Value
from vibeserve.skills.ranks import PARAMETER, rank_components
from vibeserve.spec import Spec
from vibeserve.workloads import longest_sequence_tokens


class ScaffoldSeed:
    """A scaffold assembled without components, but for the one that spreads it over ranks where the settings name
    several. Parameters are the declared defaults but for settings and pins."""

    origin = "scaffold"

    def __init__(self, folder: Path, *, settings: Mapping[str, Value], pins: Mapping[str, Value]) -> None:
        self._folder = folder
        self._values = {**settings, **pins}

    def materialise(self, destination: Path) -> None:
        chosen = rank_components(self._values, load_skills(data_dir("skills")))
        declared = declared_parameters(load_scaffold(self._folder), chosen)
        assemble(self._folder, chosen, pinned_values(declared, self._values), destination)


def scaffold_settings(spec: Spec, *, scaffold: Path) -> dict[str, Value]:
    """Values that a spec implies for parameters of its scaffold: a context that holds the longest declared sequence,
    where the model runs, and over how many ranks where there are several."""
    declared = load_scaffold(scaffold).parameters
    values: dict[str, Value] = {}
    context = declared.get("max_context_tokens")
    if context is not None:
        values["max_context_tokens"] = max(int(context.default), longest_sequence_tokens(spec.workload))
    if "device" in declared:
        values["device"] = spec.hardware.kind
    if spec.parallelism.tensor > 1:
        values[PARAMETER] = spec.parallelism.tensor
    return values
