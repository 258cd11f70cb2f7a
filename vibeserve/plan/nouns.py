"""The frozen plan."""

from __future__ import annotations

from dataclasses import dataclass

from vibeserve.spec import Schedule, Spec


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Memory of one server at the declared loads, in GiB."""

    weights_gib: float
    kv_cache_gib: float
    state_gib: float
    """recurrent state of linear-attention layers"""
    workspace_gib: float
    """interpreter, libraries and activations"""
    total_gib: float
    capacity_gib: float


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """The best value that the hardware allows for a metric at a load; `bound_by` says what limits it."""

    metric: str
    unit: str
    value: float
    bound_by: str
    """bandwidth (declared), measured bandwidth, compute, weights"""
    load: str = ""


@dataclass(frozen=True, kw_only=True)
class PlanStep:
    """A node of the build graph."""

    name: str
    needs: tuple[str, ...]
    minutes: float
    """estimate from the schedule"""


@dataclass(frozen=True, kw_only=True)
class Plan:
    plan_id: str
    """first 16 hex digits of the digest over the hashed spec, the hardware's identity and the inputs' digests"""
    spec: Spec
    """resolved: no `auto`, no size left to derive. Nobody writes to it"""
    engine_cpus: tuple[int, ...]
    client_cpus: tuple[int, ...]
    threads: int
    schedule: Schedule
    """of the level, `window_scale` applied"""
    memory: MemoryEstimate
    ceilings: tuple[Ceiling, ...]
    steps: tuple[PlanStep, ...]
    digests: dict[str, str]
    """framework, skills, lock, model, hardware"""

    @property
    def target(self) -> str:
        return self.spec.target.name

    @property
    def minutes(self) -> float:
        """Estimate for the whole run; the budget's wall time is its limit."""
        return sum(step.minutes for step in self.steps)
