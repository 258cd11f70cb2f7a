"""What a profile says, as one document. Shares are of wall time, times are seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

SPANS, STACKS, NSYS, TORCH = "spans", "stacks", "nsys", "torch"
"""tools"""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What the profiler did to the server: throughput of slices with and without it, of one load in one process."""

    metric: str
    """the throughput that was compared, per second"""
    control: float
    profiled: float
    ratio: float | None
    """profiled over control; None where nothing was served in a control slice"""
    num_slices: int = 0
    """of either kind"""


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A Python function where samples were taken, or a kernel."""

    name: str
    """`Sampler.sample (runtime/sampler.py:22)`"""
    share: float
    """of wall time"""


@dataclass(frozen=True, kw_only=True)
class Bottleneck:
    """One part of the server and how much of the wall time it runs, on the thread where it runs most."""

    name: str
    """a seam, or another module of the runtime"""
    share: float
    thread: str = ""
    amdahl_ceiling: float | None = None
    """1 / (1 - share): the gain if it took no time at all (Amdahl 1967); None where the share is the whole"""
    seconds_each: float | None = None
    """per `Profile.unit`"""
    calls: int | None = None
    """None where the tool samples and does not count"""
    floor_s: float | None = None
    """of the same unit, by the roofline: bytes that it must read over the bandwidth; None where nothing bounds it"""
    distance: float | None = None
    """`seconds_each` over `floor_s`"""
    frames: tuple[Frame, ...] = ()
    """the functions below it that were seen most"""


@dataclass(frozen=True, kw_only=True)
class ThreadFact:
    """One thread of the server under load."""

    name: str
    cpu_share: float
    """CPU seconds over wall seconds"""
    is_python: bool = False
    """frames of Python were seen on it"""


@dataclass(frozen=True, kw_only=True)
class NativeSymbol:
    """A function of a library, or a kernel of a device, that ran."""

    name: str
    library: str
    kind: str = ""
    """matmul, softmax, copy ... by its name; empty = not known"""
    share: float = 0.0
    """of the samples"""


@dataclass(frozen=True, kw_only=True)
class Structure:
    """What was there and what ran: true however much the profiler slowed the server."""

    num_processes: int = 0
    threads: tuple[ThreadFact, ...] = ()
    libraries: tuple[str, ...] = ()
    """shared objects of the runtime and of its packages that are mapped, without the system's"""
    functions: tuple[str, ...] = ()
    """`runtime/sampler.py:Sampler.sample`: every function of the runtime's own that was seen running"""
    symbols: tuple[NativeSymbol, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Profile:
    """Document: where one accepted candidate, or the seed, spends its time."""

    schema_version: int = 1
    tool: str
    """spans, stacks, nsys, torch"""
    load: str = ""
    seconds: float = 0.0
    """profiled, of wall time"""
    num_samples: int = 0
    """instants that stacks were looked at; 0 for a tool that does not sample"""
    num_native_samples: int = 0
    """of native code"""
    observed: Observed | None = None
    is_timed: bool = False
    """the profiler changed the throughput by less than the rule allows: shares and times count"""
    unit: str = ""
    """output token, or request"""
    unit_s: float | None = None
    """wall time per unit in the profiled slices"""
    unit_floor_s: float | None = None
    """shortest by the roofline: a decode step's share of one sequence; None where nothing bounds it"""
    bottlenecks: tuple[Bottleneck, ...] = ()
    """largest first; none where the profile is not timed"""
    structure: Structure = field(default_factory=Structure)
    is_own_word: bool = False
    """the numbers are the candidate's counters: they steer a plan and are never evidence"""
    notes: tuple[str, ...] = ()
    """what is missing, and why"""
