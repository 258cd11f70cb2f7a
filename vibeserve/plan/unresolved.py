"""A resolved spec as it was declared, as far as a plan fills it in: so that another plan resolves it anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vibeserve.plan.sizes import CONFIG_KEYS, count_parameters
from vibeserve.spec import SEED_BASELINE, Agents, Hardware, Host, Model, Parallelism, Sandbox, SourceKind, Spec


def unresolved(spec: Spec, *, is_same_machine: bool) -> Spec:
    """`spec` without derived sizes and without the wall of whoever made it; on another machine without its cores and
    layout, too. A search that replayed a recording becomes one of the embedded agent."""
    agents = Agents() if spec.agents.backend == "replay" else spec.agents
    baseline = {name: row for name, row in spec.baseline.items() if name != SEED_BASELINE}
    found = replace(
        spec, model=_undersized(spec.model), sandbox=Sandbox(), agents=agents, baseline=baseline, host=Host()
    )
    if is_same_machine:
        return found
    hardware = replace(
        spec.hardware, engine_cpus=Hardware.engine_cpus, client_cpus=Hardware.client_cpus,
        engine_threads=Hardware.engine_threads,
    )  # fmt: skip
    return replace(found, hardware=hardware, parallelism=Parallelism())


def _undersized(model: Model) -> Model:
    """Sizes that the seeded model's own configuration implies are left to it."""
    counted = model.num_parameters == count_parameters(model)
    found = replace(model, num_parameters=0) if counted else model
    if model.source.kind is not SourceKind.seeded:
        return found
    config = model.source.config
    implied = [name for name, key in CONFIG_KEYS.items() if getattr(model, name) == int(config.get(key, 0))]
    sizes: dict[str, Any] = dict.fromkeys(implied, 0)
    return replace(found, **sizes)
