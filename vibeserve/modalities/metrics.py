"""The table of a workload's metrics, and the values that its `measure` gives."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vibeserve.contract import Metric, Record, Window
from vibeserve.core.nouns import METRICS
from vibeserve.errors import ContractError, SpecError
from vibeserve.modalities.bundle import Bundle, open_bundle
from vibeserve.modalities.sources import bundle_ref
from vibeserve.spec import Spec

REPLACEABLE = ("request_throughput", "goodput", "e2el_p50", "e2el_p99")
"""what the framework computes from the records of every workload; a workload may have its own idea of them"""
OF_THE_SERVER = ("peak_memory", "startup")
"""what the framework reads from the server's processes"""
COMMON: dict[str, Metric] = {name: METRICS[name] for name in (*REPLACEABLE, *OF_THE_SERVER)}

DIAGNOSTICS = ("num_", "mean_")
"""how the names of values begin that are in no table"""
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def metrics_of(bundle: Bundle) -> dict[str, Metric]:
    """Every metric that a goal may name and a table may hold: the workload's own first, then the framework's.

    ContractError where METRICS is no list of metrics, or contradicts the framework's.
    """
    with bundle.blamed("workload"):
        declared = list(bundle.workload.METRICS)
    own: dict[str, Metric] = {}
    problems: list[str] = []
    for metric in declared:
        problem = _problem(metric, known=own)
        if problem:
            problems.append(problem)
        else:
            own[metric.name] = metric
    if problems:
        raise ContractError(f"{bundle.file('workload')}: METRICS", problems=problems, hint="docs/contract.md")
    return own | {name: metric for name, metric in COMMON.items() if name not in own}


def known_metrics(spec: Spec) -> dict[str, Metric]:
    """`metrics_of` the spec's workload; of every built-in modality where the spec's has no workload yet."""
    try:
        ref = bundle_ref(spec)
    except SpecError:
        return dict(METRICS)  # a modality that may be declared and planned for, and does not run
    return metrics_of(open_bundle(ref))


def _problem(metric: Any, *, known: Mapping[str, Metric]) -> str:
    """Why this entry of METRICS cannot stand; empty where it can."""
    if not isinstance(metric, Metric):
        return f"{metric!r:.60} is no vibeserve.contract.Metric"
    if not _NAME.fullmatch(metric.name) or metric.name.startswith(DIAGNOSTICS):
        return (
            f"'{metric.name}': names are lower case, such as frames_per_s; {'* and '.join(DIAGNOSTICS)}* need no entry"
        )
    if metric.name in known:
        return f"'{metric.name}' is there twice"
    if metric.name in OF_THE_SERVER:
        return f"'{metric.name}' is the framework's own; METRICS leaves it out"
    common = COMMON.get(metric.name)
    if common is not None and (metric.unit, metric.direction) != (common.unit, common.direction):
        return f"'{metric.name}' is in {common.unit}, {common.direction.value} is better"
    return ""


def measured_values(bundle: Bundle, records: Sequence[Record], windows: Sequence[Window]) -> dict[str, float]:
    """What the workload measures over the union of `windows`.

    ContractError where `measure` raises, or returns what is no finite value, not below 0, of its METRICS.
    """
    with bundle.blamed("workload"):
        found: Any = bundle.workload.measure(records, windows)
    if not isinstance(found, Mapping):
        text = f"{bundle.file('workload')}: measure returned {type(found).__name__}, not a mapping of names to numbers"
        raise ContractError(text, hint="docs/contract.md")
    names = {metric.name for metric in bundle.workload.METRICS}
    problems = [_wrong_value(name, value, names=names) for name, value in found.items()]
    if any(problems):
        raise ContractError(
            f"{bundle.file('workload')}: measure returned no metrics",
            problems=[problem for problem in problems if problem], hint="docs/contract.md",
        )  # fmt: skip
    return {name: float(value) for name, value in found.items()}


def _wrong_value(name: Any, value: Any, *, names: set[str]) -> str:
    """What is wrong with one value; empty where nothing is."""
    if not isinstance(name, str) or not (name in names or name.startswith(DIAGNOSTICS)):
        return f"{name!r} is not in METRICS; valid: {', '.join(sorted(names))}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{name}: {value!r:.60} is no number"
    if not (math.isfinite(value) and value >= 0):
        return f"{name}: {value} is not finite and at least 0; leave out what cannot be said"
    return ""
