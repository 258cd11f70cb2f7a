"""What `vibeserve status` says: the document of `--json`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal

from vibeserve.lease import Mode, Owner
from vibeserve.status.calls import CallFacts
from vibeserve.status.remaining import Eta
from vibeserve.status.rounds import Node, RoundRow
from vibeserve.status.spending import SpentBy, SpentInAll


class RunState(Enum):
    RUNNING = "running"
    """a process carries it out"""
    PAUSED = "paused"
    """so does one, and it waits for people"""
    STOPPING = "stopping"
    """somebody ended the search; its winner is certified next"""
    FINISHED = "finished"
    """it left its artifact"""
    STOPPED = "stopped"
    """no process carries it out; the same command goes on with it"""
    DEAD = "dead"
    """the same, and the process that did was killed"""
    UNREADABLE = "unreadable"
    """its journal is damaged"""


class Phase(Enum):
    NONE = ""
    """nothing is searched now"""
    BETWEEN = "between rounds"
    SEED = "round 0"
    PROPOSING = "proposing"
    IMPLEMENTING = "implementing"
    REVIEWING = "reviewing"
    EXPLAINING = "explaining"
    MEASURING = "measuring"
    ROUND = "in a round"
    """building, starting, probing or re-scoring its candidate"""
    CERTIFYING = "certifying"
    PACKAGING = "packaging"


@dataclass(frozen=True, kw_only=True)
class StepRow:
    """One step of the build graph."""

    name: str
    state: Literal["done", "under way", "waits"]
    seconds: float | None = None
    """that it took; of the run that made it"""


@dataclass(frozen=True, kw_only=True)
class Against:
    """The certified headline beside one competent baseline."""

    name: str
    version: str
    precision: str
    ratio: float
    ci_low: float | None
    ci_high: float | None


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The incumbent."""

    round: int
    title: str
    ratio: float
    """headline against round 0, over the chain; it steers the search and is never quoted"""
    ci_low: float
    ci_high: float
    chain: tuple[Node, ...]
    """from round 0 to the incumbent"""
    competent: tuple[Against, ...]
    """certified; empty until then"""
    why_no_baseline: str
    """empty where `competent` holds something"""


@dataclass(frozen=True, kw_only=True)
class ItemRow:
    """One idea of the backlog."""

    item: str
    state: str
    title: str
    who: str
    round: int
    why: str


@dataclass(frozen=True, kw_only=True)
class BacklogFacts:
    """Ideas by state, and the first ones that wait or are tried."""

    counts: dict[str, int]
    top: tuple[ItemRow, ...]


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Something that the run, or somebody with it, waits for."""

    what: Literal["device", "mailbox", "pause", "request"]
    text: str


@dataclass(frozen=True, kw_only=True)
class RunStatus:
    """One run: its journal's folder under `.vibeserve`, what it is doing, what it found and what it cost."""

    run: str
    num_events: int
    last_kind: str
    last_at_s: float
    """seconds since the epoch"""
    last_data: Any = None
    fault: str = ""
    """of an unreadable journal"""
    state: RunState = RunState.STOPPED
    owner: Owner | None = None
    """the process that carries it out; in state dead the one that did"""
    target: str = ""
    plan_id: str = ""
    overrides: tuple[str, ...] | None = None
    """words beside the target of the command that began it, as they were typed; None where that is not known"""
    headline: str = ""
    """metric that the search decides on; empty where the journal does not tell"""
    steps: tuple[StepRow, ...] = ()
    step: str = ""
    """the one under way, or the next one"""
    phase: Phase = Phase.NONE
    rounds: tuple[RoundRow, ...] = ()
    incumbent: Standing | None = None
    """None until round 0 has passed"""
    backlog: BacklogFacts | None = None
    call: CallFacts | None = None
    """of an agent; None where none was asked"""
    spent: tuple[SpentBy, ...] = ()
    """by agents, by round and role"""
    spent_in_all: SpentInAll | None = None
    eta: Eta | None = None
    """None where nothing is left to do"""
    waits: tuple[Waiting, ...] = ()
    holds: tuple[str, ...] = ()
    """what people asked and holds now: constraints, pins, budgets, back ends"""


@dataclass(frozen=True, kw_only=True)
class LeaseRow:
    """A holder or waiter of a device."""

    device: str
    ticket: int
    token: str
    mode: Mode
    is_held: bool
    what: str
    owner: Owner
    schema_version: int = 1


@dataclass(frozen=True, kw_only=True)
class StatusDocument:
    """Document of `vibeserve status --json`."""

    schema_version: int = 1
    runs: tuple[RunStatus, ...]
    """the one with the newest event first"""
    leases: tuple[LeaseRow, ...]
