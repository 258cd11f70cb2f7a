"""The frozen plan."""

from __future__ import annotations

from dataclasses import dataclass

from vibeserve.schedules import Schedule
from vibeserve.spec import Spec

MEASURED, DECLARED, COMPUTE = "measured bandwidth", "bandwidth", "compute"
"""what bounds a floor"""

UNBOUNDED_GB_S = 1e6
"""stands for a bandwidth that nobody measured: what it bounds says nothing and refuses no goal"""


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Memory of one rank at the load that needs most, in GiB. A rank is one device of a replica."""

    weights_gib: float
    kv_cache_gib: float
    state_gib: float
    """recurrent state of linear-attention layers"""
    workspace_gib: float
    """interpreter, libraries and activations"""
    total_gib: float
    capacity_gib: float | None
    """None where it is neither declared nor probed"""
    prefix_kv_gib: float = 0.0
    """the part of `kv_cache_gib` that shared prefixes occupy"""
    load: str = ""
    num_sequences: int = 0
    """in flight on one replica"""

    @property
    def fits(self) -> bool:
        return self.capacity_gib is None or self.total_gib <= self.capacity_gib


@dataclass(frozen=True, kw_only=True)
class Roof:
    """What one device can do at most; 0 = unknown."""

    bandwidth_gb_s: float
    is_measured: bool = False
    is_disturbed: bool = False
    """measured while other work waited for cores"""
    tflops: float = 0.0
    """in the precision that the target serves in"""
    interconnect_gb_s: float = 0.0

    @property
    def memory_bound(self) -> str:
        return MEASURED if self.is_measured else DECLARED


@dataclass(frozen=True, kw_only=True)
class DecodeFloor:
    """Shortest decode step of one load, and what one rank reads in it."""

    load: str
    num_sequences: float
    """in one step of one replica"""
    weights_gib: float
    kv_gib: float
    state_gib: float
    """read and written: twice its size"""
    all_reduce_s: float | None
    """None where ranks must talk and their interconnect is not declared"""
    step_s: float | None
    """None where neither bandwidth nor arithmetic bounds it"""
    bound_by: str


@dataclass(frozen=True, kw_only=True)
class PrefillFloor:
    """Shortest time to a first token, alone on the machine."""

    num_tokens: int
    """computed: the shortest prompt's own tokens"""
    num_cached_tokens: int
    """of a shared prefix, kept from before"""
    compute_s: float | None
    bandwidth_s: float | None
    """weights and the prefix's cache, once"""


@dataclass(frozen=True, kw_only=True)
class Ceiling:
    """The best value that the hardware allows for a metric at a load; `bound_by` says what limits it."""

    metric: str
    unit: str
    value: float
    bound_by: str
    """bandwidth (declared), measured bandwidth, compute, weights, offered load"""
    load: str = ""


@dataclass(frozen=True, kw_only=True)
class RatioBound:
    """How far a relative goal can be reached: its metric's ceiling over a baseline's declared figure."""

    goal: int
    """position in `goals`"""
    metric: str
    load: str
    against: str
    min_ratio: float
    ceiling: float | None
    baseline: str
    """the declared figure that bounds most, empty without any"""
    declared: float | None
    source: str
    """of the declared figure"""
    max_ratio: float | None
    """None without a ceiling or a declared figure"""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a run takes and when it pays back."""

    device_hours: float
    usd: float | None
    """of the devices; None = not priced"""
    agents_usd: float
    """most that agents may spend (`budget.usd`)"""
    break_even_requests: float | None
    break_even: str
    """what the number assumes, or why there is none"""


@dataclass(frozen=True, kw_only=True)
class Obstacle:
    """Why a target is planned for and cannot be run from here. `kind`: host, version, baseline or
    scaffold."""

    kind: str
    text: str


@dataclass(frozen=True, kw_only=True)
class PlanStep:
    """A node of the build graph."""

    name: str
    needs: tuple[str, ...]
    minutes: float
    """estimate from the schedule"""

    @property
    def is_search(self) -> bool:
        return self.name == "synthesize"


@dataclass(frozen=True, kw_only=True)
class Plan:
    plan_id: str
    """first 16 hex digits of the digest over the hashed spec, the hardware's identity and the inputs' digests"""
    spec: Spec
    """resolved: no size left to derive and, where the hardware is here, no `auto`. Nobody writes to it"""
    engine_cpus: tuple[int, ...]
    """empty where the hardware is not here"""
    client_cpus: tuple[int, ...]
    threads: int
    schedule: Schedule
    """of the level, `window_scale` applied"""
    memory: MemoryEstimate
    ceilings: tuple[Ceiling, ...]
    steps: tuple[PlanStep, ...]
    digests: dict[str, str]
    """framework, skills, lock, model, hardware"""
    roof: Roof
    prefill: PrefillFloor | None = None
    decode: tuple[DecodeFloor, ...] = ()
    ratios: tuple[RatioBound, ...] = ()
    cost: Cost | None = None
    obstacles: tuple[Obstacle, ...] = ()
    """empty: it can be run here"""
    next_steps: tuple[str, ...] = ()
    """what would remove the obstacles"""
    notes: tuple[str, ...] = ()
    """what the numbers leave out"""

    @property
    def target(self) -> str:
        return self.spec.target.name

    @property
    def minutes(self) -> float:
        """Estimate for the whole run; the budget's wall time is its limit."""
        return sum(step.minutes for step in self.steps)
