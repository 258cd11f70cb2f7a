"""The embedded seed: the target's scaffold, with no component."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from vibeserve.skills import assemble, load_scaffold, pinned_values
from vibeserve.skills.card import Value
from vibeserve.spec import Spec
from vibeserve.workloads import longest_sequence_tokens


class ScaffoldSeed:
    """A scaffold assembled without components. Parameters are the declared defaults but for settings and pins."""

    origin = "scaffold"

    def __init__(self, folder: Path, *, settings: Mapping[str, Value], pins: Mapping[str, Value]) -> None:
        self._folder = folder
        self._values = {**settings, **pins}

    def materialise(self, destination: Path) -> None:
        parameters = pinned_values(load_scaffold(self._folder).parameters, self._values)
        assemble(self._folder, [], parameters, destination)


def scaffold_settings(spec: Spec, *, scaffold: Path) -> dict[str, Value]:
    """Values that a spec implies for parameters of its scaffold: a context that holds the longest declared sequence,
    and where the model runs."""
    declared = load_scaffold(scaffold).parameters
    values: dict[str, Value] = {}
    context = declared.get("max_context_tokens")
    if context is not None:
        values["max_context_tokens"] = max(int(context.default), longest_sequence_tokens(spec.workload))
    if "device" in declared:
        values["device"] = spec.hardware.kind
    return values
