"""One run: its folder, its journal, and the objects that the steps share. Opened once per command."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from vibeserve.agents import Agents, PlannerAgent
from vibeserve.agents.briefs import machine_brief
from vibeserve.agents.ledger import Spend
from vibeserve.agents.sandboxed import ToolSandbox
from vibeserve.agents.team import SPEND, AgentSetting, make_agents, visible_skills
from vibeserve.benchmark.clock import make_clock
from vibeserve.certification import certify_extent
from vibeserve.checkpoint import CheckpointStore
from vibeserve.control import Steering
from vibeserve.core.documents import from_data
from vibeserve.core.paths import cache_dir, data_dir, state_dir
from vibeserve.errors import BudgetError
from vibeserve.hardware import HardwareFacts
from vibeserve.hosts import LocalHost, get_host
from vibeserve.hosts.piped import PipedHost
from vibeserve.journal import Journal
from vibeserve.lease import Lease
from vibeserve.plan import Plan
from vibeserve.progress import Progress
from vibeserve.remote.bench import RemoteBench
from vibeserve.roles.evaluator import Evaluator
from vibeserve.roles.judge import Judge
from vibeserve.roles.workbench import Workbench
from vibeserve.rounds import Team
from vibeserve.service.launch import thread_environment
from vibeserve.skills import Skill, assemble, load_scaffold, resolve, target_skills
from vibeserve.spec import Spec, Tier
from vibeserve.weights import ModelDir, materialise

ON_CONTROLLER = ("package", "agents")
"""benches that start no server: they stay here, wherever the plan is measured"""


@dataclass(kw_only=True)
class Run:
    """A plan being carried out in a project folder."""

    plan: Plan
    facts: HardwareFacts
    project: Path
    progress: Progress
    journal: Journal
    lease: Lease
    started_s: float
    """`lease.monotonic()` when this process got the run: the budget's wall time counts from here"""
    calibrated: str = ""
    """what a short run of the baselines gave; agents are told"""
    search_until_s: float = math.inf
    """of `lease.monotonic()`: the search leaves what comes after it to certification"""

    @property
    def run_id(self) -> str:
        return run_id_of(self.plan)

    @property
    def folder(self) -> Path:
        return run_folder(self.project, self.plan)

    def model(self) -> ModelDir:
        target = self.plan.spec.target.dir
        return materialise(self.plan.spec.model, cache=cache_dir(), target_dir=Path(target) if target else None)

    def bench(self, name: str) -> Workbench:
        """A bench with a folder of its own for one step."""
        plan, run_dir = self.plan, self.folder / name
        if plan.spec.host.kind == "local":
            return Workbench.open(plan, model=self.model(), run_dir=run_dir, lease=self.lease)
        if name in ON_CONTROLLER:
            host = LocalHost()
            tier = host.resolve_tier(Tier.auto, allow_none=plan.spec.sandbox.allow_none)
            return Workbench(
                plan=plan, host=host, tier=tier, model=self.model(), run_dir=run_dir, lease=self.lease
            )
        return RemoteBench.connect(plan, host=self._there, model=self.model(), run_dir=run_dir, lease=self.lease)

    @cached_property
    def _there(self) -> PipedHost:
        """The one way to the host: an allocation is not asked for twice at once."""
        host = get_host(self.plan.spec.host)
        assert isinstance(host, PipedHost)
        return host

    def store(self) -> CheckpointStore:
        return CheckpointStore(self.folder / "checkpoints.git")

    def skills(self) -> list[Skill]:
        return target_skills(self.plan.spec)

    def assemble(self, components: Sequence[str], parameters: Mapping[str, Any], folder: Path) -> None:
        """Write to `folder` what these components are assembled to. SpecError where they cannot be."""
        scaffold = self.bench("package").scaffold
        assemble(scaffold, resolve(components, self.skills()), parameters, folder)

    @cached_property
    def steering(self) -> Steering:
        """What people ask of this run. A pause gives the devices back."""
        spent_s = sum(float(event.data["record"]["seconds"]) for event in self.journal.events("round"))
        return Steering(
            self.journal, spec=self.plan.spec, progress=self.progress, aside=self.lease.aside,
            wall_spent_s=lambda: spent_s + self.lease.monotonic() - self.started_s,
        )  # fmt: skip

    def team(self) -> tuple[Team, PlannerAgent]:
        """The roles of the search, and the planner that directs them."""
        bench, skills = self.bench("synthesize"), self.skills()

        def agents_of(spec: Spec) -> Agents:
            return make_agents(self._setting(bench, skills, plan=replace(self.plan, spec=spec)))

        self.steering.rebuild = agents_of
        agents = agents_of(self.steering.spec)
        return self._team(bench, agents, skills), agents.planner

    def _setting(self, bench: Workbench, skills: list[Skill], *, plan: Plan) -> AgentSetting:
        # agents work where the keys are
        here = bench if bench.host.kind == "local" else self.bench(ON_CONTROLLER[0])
        sandbox = ToolSandbox(
            host=here.host, tier=here.tier, resources=bench.resources, cpus=plan.engine_cpus,
            allow_engines=tuple(plan.spec.allow_engines), env=thread_environment(plan.threads),
            model_dir=bench.model.path,
        )  # fmt: skip
        return AgentSetting(
            plan=plan, skills=skills, skills_dir=data_dir("skills"), scaffold=bench.scaffold,
            model_dir=bench.model.path, machine=machine_brief(self.facts), folder=self.folder,
            journal=self.journal, sandbox=sandbox, calibrated=self.calibrated,
            progress=self.progress, remaining_s=self.search_left_s, aside=self.lease.aside,
        )  # fmt: skip

    def search_left_s(self) -> float:
        """Wall seconds until the search has to end."""
        return self.search_until_s + self.steering.wall_added_s - self.lease.monotonic()

    def _team(self, bench: Workbench, agents: Agents, skills: list[Skill]) -> Team:
        clock = make_clock(self.plan.spec.evaluation.clock, metrics=bench.metrics)
        evaluator = Evaluator(bench, clock, progress=self.progress)
        return Team(
            bench=bench, judge=Judge(bench), evaluator=evaluator, clock=clock, implementer=agents.implementer,
            reviewer=agents.judge, explainer=agents.evaluator, scaffold=load_scaffold(bench.scaffold),
            skills=visible_skills(skills, has_components=self.plan.spec.skills.components), store=self.store(),
            progress=self.progress, run_id=self.run_id, monotonic=self.lease.monotonic,
            search_left_s=self.search_left_s,
        )  # fmt: skip


def spends_of(run: Run) -> list[Spend]:
    """What agents spent, request by request."""
    return [from_data(Spend, event.data) for event in run.journal.events(SPEND)]


def run_id_of(plan: Plan) -> str:
    return f"{plan.target}-{plan.plan_id}"


def run_folder(project: Path, plan: Plan) -> Path:
    """Where the state of a plan's run lies in a project."""
    return state_dir(project) / "runs" / run_id_of(plan)


def certify_estimate_s(plan: Plan, *, num_rivals: int) -> float:
    """Wall seconds to keep for certification and packaging: starts, warm-ups, windows, and re-scoring.

    `num_rivals` are those that are interleaved.
    """
    extent, schedule = certify_extent(plan), plan.schedule
    num_contenders = num_rivals + 1
    num_servers = extent.num_starts * (extent.num_pairs if extent.is_fresh_per_window else 1)
    start_s = num_contenders * (START_S + 2 * extent.warmup_s)
    num_windows = extent.num_starts * len(extent.loads) * extent.num_pairs
    measured_s = num_servers * start_s + num_windows * num_contenders * (extent.window_s + extent.warmup_s)
    rescored_s = RESCORE_SHARE * num_windows * extent.window_s
    return measured_s + rescored_s + GATES_S + schedule.audit_budget_s + extent.soak_s


def least_s(plan: Plan) -> float:
    """Wall seconds that no machine is too fast for: the windows in which the winner and round 0 are measured, and the
    soak. Starts, re-scoring, rivals and audits come on top."""
    extent, schedule = certify_extent(plan), plan.schedule
    certified_s = extent.num_starts * len(extent.loads) * extent.num_pairs * extent.window_s
    round_0_s = 2 * schedule.search_pairs * schedule.search_window_s
    return certified_s + round_0_s + extent.soak_s


def refuse_short_budget(plan: Plan) -> None:
    """Raise BudgetError, before anything is spent, where round 0 and certification alone cannot fit."""
    wall_s, needed_s = plan.spec.budget.wall_s, least_s(plan)
    if wall_s >= needed_s:
        return
    level = plan.spec.budget.level.value
    raise BudgetError(
        f"budget.wall_s is {wall_s:g} s; measuring round 0 and certifying at level {level} takes {needed_s:.0f} s and "
        f"more; nothing was started\nnext: `vibeserve plan {plan.target}` estimates {plan.minutes:.0f} min; raise "
        "budget.wall_s, or choose a lower budget.level"
    )


START_S = 10.0
RESCORE_SHARE = 1.2
"""seconds of re-scoring per second of a measured window of the winner"""
GATES_S = 45.0
"""screening, the runtime's own tests, packaging"""
