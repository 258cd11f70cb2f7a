"""What differs between the plan that an artifact was made for and the one that is asked for now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from vibeserve.core.documents import to_data
from vibeserve.spec import Spec
from vibeserve.workloads import WORKLOAD_FILES

LEFT_OUT = ("target", "seed", "out_dir", "require_goal", "host")
"""of the spec: they say where and from what, not what"""
MAX_SHOWN = 60


@dataclass(frozen=True, kw_only=True)
class ChangedFact:
    """One fact that is another now. `before` and `after` are JSON data; None = it was not there."""

    name: str
    """key of the spec, `machine.NAME` of the hardware's identity, or `inputs.NAME` of a digested input"""
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.name}: {_short(self.before)} -> {_short(self.after)}"


def spec_changes(before: Spec, after: Spec) -> tuple[ChangedFact, ...]:
    """Every key whose value differs, in the spec's order."""
    return tuple(_changes(_flat(_kept(before)), _flat(_kept(after))))


def changes_of(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[ChangedFact, ...]:
    """Facts of two mappings that differ, each as `name.KEY`."""
    as_json = (json.loads(json.dumps(dict(each))) for each in (before, after))
    return tuple(_changes(*({f"{name}.{key}": value for key, value in each.items()} for each in as_json)))


def _kept(spec: Spec) -> dict[str, Any]:
    data = {name: value for name, value in to_data(spec).items() if name not in LEFT_OUT}
    files = {name: PurePath(getattr(spec.workload, name)).name for name in WORKLOAD_FILES}
    return {**data, "workload": {**data["workload"], **files}}


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[ChangedFact]:
    for name in dict.fromkeys((*before, *after)):
        if before.get(name) != after.get(name):
            yield ChangedFact(name=name, before=before.get(name), after=after.get(name))


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """`a.b` -> value of every leaf; a list of plain values is one leaf."""
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        children = ((str(number), item) for number, item in enumerate(value))  # type: ignore[assignment]
    else:
        return {prefix: value}
    found: dict[str, Any] = {}
    for name, item in children:
        found |= _flat(item, f"{prefix}.{name}" if prefix else str(name))
    return found


def _short(value: Any) -> str:
    if value is None:
        return "(none)"
    text = value if isinstance(value, str) and value else json.dumps(value)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN - 3]}..."
