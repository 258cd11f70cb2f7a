"""What a round is given and what it leaves."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vibeserve.agents import Assembled, EvaluatorAgent, ImplementerAgent, JudgeAgent
from vibeserve.benchmark import Clock
from vibeserve.checkpoint import CheckpointStore
from vibeserve.contract import Metric
from vibeserve.core.nouns import Candidate, RatioInterval, Round
from vibeserve.profiles import Profile
from vibeserve.progress import Progress
from vibeserve.roles.evaluator import Evaluator, Series
from vibeserve.roles.judge import Judge
from vibeserve.roles.workbench import Workbench
from vibeserve.skills import Scaffold, Skill


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A workspace that is, or may become, the incumbent."""

    candidate: Candidate
    assembled: Assembled
    workspace: Path
    spans: dict[str, float] = field(default_factory=dict)
    profile: Profile | None = None
    num_lines: int = 0
    """of the runtime's Python and native sources: the simplicity of a tie"""


@dataclass(kw_only=True)
class Team:
    """Everything that a round needs and that outlives it."""

    bench: Workbench
    judge: Judge
    evaluator: Evaluator
    clock: Clock
    implementer: ImplementerAgent
    reviewer: JudgeAgent
    explainer: EvaluatorAgent
    scaffold: Scaffold
    skills: Sequence[Skill]
    store: CheckpointStore
    progress: Progress
    run_id: str
    pins: Mapping[str, float | int | str | bool] = field(default_factory=dict)
    """beside the target's own: those that a person asked for"""
    search_left_s: Callable[[], float] = lambda: math.inf
    """wall seconds until the search has to end"""
    monotonic: Callable[[], float] = time.monotonic
    """clock of the rounds' seconds: it stands still while the run waits for a device"""

    @property
    def headline(self) -> str:
        goals = self.bench.plan.spec.goals
        return goals[0].metric if goals else "request_throughput"

    @property
    def headline_metric(self) -> Metric:
        return self.bench.metrics[self.headline]

    @property
    def headline_load(self) -> str:
        return self.bench.plan.spec.workload.headline_load


@dataclass(frozen=True, kw_only=True)
class RoundResult:
    """The record, and the checkpoint where the candidate was accepted."""

    record: Round
    checkpoint: Checkpoint | None = None
    kept: Checkpoint | None = None
    """passed every gate and was measured, but is not the incumbent: a policy may extend it"""
    against_parent: RatioInterval | None = None
    """of the headline, where the round did not start from the incumbent too"""
    series: dict[str, Series] = field(default_factory=dict)


def first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
