"""The inner loop: implement, screen, measure beside the incumbent, judge, decide. One round leaves one record."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vibeserve.agents import (
    TUNING_CARD,
    Assembled,
    EvaluatorAgent,
    Explanation,
    Implementation,
    ImplementerAgent,
    JudgeAgent,
    PlanningState,
    Review,
)
from vibeserve.agents.hygiene import remove_tree
from vibeserve.benchmark import Clock, Guard, decide, noise_floor, self_log_ratios
from vibeserve.checkpoint import CheckpointStore
from vibeserve.contract import Metric
from vibeserve.core.nouns import (
    Candidate,
    Decision,
    Outcome,
    Proposal,
    Refusal,
    RefusedAttempt,
    Round,
    Verdict,
)
from vibeserve.errors import (
    AgentInfraError,
    ContractError,
    InfraError,
    RefusedError,
    ServerError,
    SpecError,
    VibeServeError,
)
from vibeserve.progress import Progress
from vibeserve.roles.evaluator import Entrant, Evaluator, Series
from vibeserve.roles.judge import Judge, Screening
from vibeserve.roles.workbench import Workbench
from vibeserve.sandbox import Exceeded
from vibeserve.service import Server
from vibeserve.skills import Scaffold, Skill, declared_parameters, pinned_values, resolve
from vibeserve.workloads import Pool

TRADED = ("ttft", "tpot", "e2el")
"""latencies that a candidate could buy one of with another"""
MAX_TRADE = 0.1
"""how much worse the others may become, as a share"""


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A workspace that is, or may become, the incumbent."""

    candidate: Candidate
    assembled: Assembled
    workspace: Path
    spans: dict[str, float] = field(default_factory=dict)
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
    series: dict[str, Series] = field(default_factory=dict)


def run_round(
    team: Team, proposal: Proposal, *, number: int, incumbent: Checkpoint, state: PlanningState, seed_floor: float,
    why_ends: Callable[[Round], str] = lambda record: "",
) -> RoundResult:  # fmt: skip
    """One proposal through the inner loop, a refused one revised as often as the budget's attempts allow.

    Before another attempt `why_ends` is asked, with the refused one's record, whether there shall be one.
    Never raises for what a candidate does; infrastructure failures become `infra`. ContractError where a file of the
    target's folder fails, AgentInfraError and AgentCapError where an agent cannot be asked: then the round did not
    happen.
    """
    started_s = team.monotonic()
    earlier: list[Round] = []
    current = proposal
    while True:
        given = _given(team, number=number, earlier=earlier, incumbent=incumbent, records=state.records)
        result = _attempt(team, current, given=given, incumbent=incumbent, seed_floor=seed_floor)
        record = result.record
        if not record.is_refused or record.attempts >= team.bench.plan.spec.budget.attempts:
            break
        ended = why_ends(record)
        if ended:
            record = replace(record, reason=f"{record.reason}; {ended}")
            break
        refusals = record.verdict.refusals if record.verdict else ()
        tried = replace(state, records=[*state.records, *earlier, record])
        revised = team.implementer.revise(record.proposal or current, refusals=refusals, state=tried)
        if revised is None:
            break
        team.progress.event(f"round {number}", f"{record.reason}; another attempt: {revised.title}")
        earlier.append(record)
        current = revised
    attempts = tuple(_refused_attempt(refused) for refused in earlier)
    analysis = _explained(team, record, incumbent=incumbent, records=state.records)
    record = replace(record, refused_attempts=attempts, analysis=analysis)
    _keep_patch(team, record, incumbent=incumbent)
    return replace(result, record=replace(record, seconds=team.monotonic() - started_s))


def _given(
    team: Team, *, number: int, earlier: Sequence[Round], incumbent: Checkpoint, records: Sequence[Round]
) -> Implementation:
    """What the next attempt of a round starts from."""
    attempt = len(earlier) + 1
    last = earlier[-1] if earlier else None
    tree = last.candidate.workspace if last is not None and last.candidate is not None else ""
    return Implementation(
        workspace=_fresh(team, f"r{number:02d}a{attempt}"), number=number, attempt=attempt,
        incumbent=incumbent.workspace, assembled=incumbent.assembled, previous=Path(tree) if tree else None,
        refusals=last.verdict.refusals if last is not None and last.verdict is not None else (), records=records,
        tried=tried_folder(team),
    )  # fmt: skip


def tried_folder(team: Team) -> Path:
    """Patches of candidates that passed every gate and were not faster: work that a later round may build on."""
    folder = team.bench.run_dir / "tried"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _keep_patch(team: Team, record: Round, *, incumbent: Checkpoint) -> None:
    if record.candidate is not None and record.outcome is Outcome.REJECTED and not record.is_refused:
        path = tried_folder(team) / f"{record.candidate.candidate_id}.diff"
        path.write_text(_patch(team, record.candidate, incumbent), encoding="utf-8")


def _explained(team: Team, record: Round, *, incumbent: Checkpoint, records: Sequence[Round]) -> str:
    """The evaluator's remark on a measured round. It decides nothing, so a missing one is told and no more."""
    if record.candidate is None or not record.metrics:
        return ""
    given = Explanation(
        record=record, workspace=Path(record.candidate.workspace), patch=_patch(team, record.candidate, incumbent),
        incumbent_spans=incumbent.spans, records=records,
    )  # fmt: skip
    try:
        return team.explainer.explain(given)
    except RefusedError as error:
        team.progress.event(f"round {record.number}", f"no remark of the evaluator: {_first_line(error)}")
        return ""


def _patch(team: Team, candidate: Candidate, incumbent: Checkpoint) -> str:
    return team.store.diff(incumbent.candidate.commit, candidate.commit)


def _refused_attempt(record: Round) -> RefusedAttempt:
    assert record.proposal is not None
    return RefusedAttempt(
        proposal=record.proposal, candidate=record.candidate, outcome=record.outcome, reason=record.reason,
        verdict=record.verdict, metrics=record.metrics,
    )  # fmt: skip


def _attempt(
    team: Team, proposal: Proposal, *, given: Implementation, incumbent: Checkpoint, seed_floor: float
) -> RoundResult:
    """The round's boundary: what goes wrong in here is an outcome, not an exception; but for ContractError, and for an
    agent that cannot be asked."""
    name = given.workspace.name
    record = Round(
        number=given.number, proposal=proposal, candidate=None, outcome=Outcome.CRASHED, reason="",
        attempts=given.attempt,
    )  # fmt: skip
    try:
        proposal, offered = _offer(team, proposal, given=given)
        record = replace(record, proposal=proposal, candidate=offered.candidate)
        return _judge_and_measure(team, offered, record=record, incumbent=incumbent, name=name, seed_floor=seed_floor)
    except (ContractError, AgentInfraError):
        raise  # broken files of the target, a model's API that fails: neither says anything about a candidate
    except (InfraError, RefusedError, SpecError) as error:
        return RoundResult(record=_failed(record, error, incumbent=incumbent))


def _failed(record: Round, error: VibeServeError, *, incumbent: Checkpoint) -> Round:
    """What an error says about the candidate; about the machine where it is nobody's or the incumbent's."""
    reason = _first_line(error)
    outcome = Outcome.REJECTED
    if isinstance(error, ServerError) and error.name != incumbent.candidate.candidate_id:
        outcome = Outcome.TIMED_OUT if error.outcome == "timed_out" else Outcome.CRASHED
        verdict = _refuse(Refusal(gate="serving", reason_class=error.outcome, text=str(error)))
    elif isinstance(error, SpecError):
        # the proposal itself cannot be built: components that do not go together, parameters out of range
        verdict = _refuse(Refusal(gate="assembly", reason_class="invalid_proposal", text=str(error)))
    elif isinstance(error, RefusedError):
        typed = [reason for reason in error.reasons if isinstance(reason, Refusal)]
        verdict = _refuse(*(typed or [Refusal(gate="workspace", reason_class="refused", text=str(error))]))
    else:
        return replace(record, outcome=Outcome.INFRA, reason=reason)
    return replace(record, outcome=outcome, reason=reason, verdict=verdict)


def _refuse(*refusals: Refusal) -> Verdict:
    return Verdict(refusals=refusals, checks=tuple(sorted({refusal.gate for refusal in refusals})))


def _offer(team: Team, proposal: Proposal, *, given: Implementation) -> tuple[Proposal, Checkpoint]:
    """Implement the proposal (its best variant, where it tunes) and commit it."""
    _refuse_moved_pins(team, proposal)
    name = given.workspace.name
    if proposal.variants:
        proposal = _best_variant(team, proposal, given=given)
    team.implementer.implement(proposal, given)
    return proposal, commit(team, given.workspace, name=name, proposal=proposal, before=given.assembled)


def _refuse_moved_pins(team: Team, proposal: Proposal) -> None:
    """SpecError where a planner, whoever it is, gives a pinned parameter another value."""
    declared = declared_parameters(team.scaffold, resolve(proposal.components, team.skills))
    pins = pinned_values(declared, {**team.bench.plan.spec.search.pins, **team.pins})
    offered = proposal.variants or (proposal.parameters,)
    moved = [
        f"{name} is pinned to {pin!r}, proposed is {parameters.get(name, declared[name].default)!r}"
        for name, pin in pins.items()
        for parameters in offered
        if parameters.get(name, declared[name].default) != pin
    ]
    if moved:
        raise SpecError("the proposal moves a pinned parameter", problems=moved)


def commit(
    team: Team, workspace: Path, *, name: str, proposal: Proposal | None, before: Assembled | None = None
) -> Checkpoint:
    """Freeze a workspace as a candidate: a commit under the run's own refs."""
    title = proposal.title if proposal else "round 0: the seed"
    sha = team.store.commit(workspace, parent=None, message=title, ref=f"refs/vibeserve/{team.run_id}/{name}")
    origin = (team.implementer.origin if proposal else "") or origin_of(proposal)
    candidate = Candidate(candidate_id=name, commit=sha, workspace=str(workspace), origin=origin)
    assembled = (
        Assembled(components=proposal.components, parameters=dict(proposal.parameters)) if proposal else Assembled()
    )
    if proposal and team.implementer.origin:
        forecast = proposal.forecast_ratio * (before.forecast if before else 1.0)
        assembled = replace(assembled, is_edited=True, forecast=forecast)
    team.clock.declare(name, factor=expected_factor(team.skills, assembled))
    return Checkpoint(candidate=candidate, assembled=assembled, workspace=workspace, num_lines=count_lines(workspace))


def origin_of(proposal: Proposal | None) -> str:
    """Who is credited with an assembled candidate's gain."""
    if proposal is None:
        return "scaffold"
    return "tuning" if proposal.variants or proposal.card == TUNING_CARD else f"component:{proposal.card}"


def expected_factor(skills: Sequence[Skill], assembled: Assembled) -> float:
    """Product of the cards' expected factors, or of the forecasts where an agent wrote: what the fake clock pretends to
    measure."""
    if assembled.is_edited:
        return assembled.forecast
    factor = 1.0
    for skill in skills:
        if skill.name in assembled.components and skill.card is not None:
            factor *= skill.card.expected_factor
    return factor


def count_lines(workspace: Path) -> int:
    """Lines of the runtime's sources."""
    sources = [path for suffix in ("*.py", "*.cpp", "*.h") for path in (workspace / "runtime").rglob(suffix)]
    return sum(len(path.read_text(encoding="utf-8", errors="replace").splitlines()) for path in sources)


def _fresh(team: Team, name: str) -> Path:
    """A new folder under the run for one workspace; what an interrupted attempt left there goes."""
    workspace = team.bench.run_dir / "workspaces" / name
    remove_tree(workspace)
    workspace.parent.mkdir(parents=True, exist_ok=True)
    return workspace


def _best_variant(team: Team, proposal: Proposal, *, given: Implementation) -> Proposal:
    """Start every variant that builds, halve them by short windows, and offer the best one alone."""
    schedule, name = team.bench.plan.schedule, given.workspace.name
    running: dict[str, tuple[Server, Proposal]] = {}
    try:
        for position, parameters in enumerate(proposal.variants):
            variant = replace(proposal, parameters=parameters)
            label = f"{name}v{position}"
            workspace = _fresh(team, label)
            team.implementer.implement(variant, replace(given, workspace=workspace))
            assembled = Assembled(components=variant.components, parameters=dict(parameters))
            team.clock.declare(label, factor=expected_factor(team.skills, assembled))
            try:
                team.bench.build(workspace)
                running[label] = (team.bench.serve(workspace, name=label), variant)
            except (RefusedError, ServerError) as error:
                team.progress.event(proposal.proposal_id, f"variant {parameters} does not start: {_first_line(error)}")
        if not running:
            raise ServerError(name, outcome="died", detail="no variant starts", log_tail="")
        best = team.evaluator.halve(
            [Entrant(name=label, server=server) for label, (server, _) in running.items()],
            load=team.headline_load, pool=Pool.selection, seed=secrets.randbits(31), metric=team.headline,
            window_s=schedule.search_window_s / 2, warmup_s=schedule.search_warmup_s,
        )  # fmt: skip
        return running[best][1]
    finally:
        for server, _ in running.values():
            server.stop(drain_s=0)


def _judge_and_measure(
    team: Team, offered: Checkpoint, *, record: Round, incumbent: Checkpoint, name: str, seed_floor: float
) -> RoundResult:
    plan = team.bench.plan
    seed = secrets.randbits(31)  # drawn after the candidate is frozen
    screening = team.judge.screen(offered.workspace, name=name, seed=seed)
    if screening.server is None:
        verdict = Verdict(refusals=screening.refusals, checks=screening.checks)
        outcome = _screening_outcome(screening)
        return RoundResult(
            record=replace(record, outcome=outcome, reason=screening.refusals[0].feedback, verdict=verdict)
        )
    series = _measure(team, screening.server, incumbent=incumbent, name=name, seed=seed)
    ours, theirs = series[name], series[incumbent.candidate.candidate_id]
    verdict, _ = team.judge.verdict(
        ours.replies, workspace=offered.workspace, before=screening.before, seed=seed, name=name,
        max_replies=plan.spec.evaluation.num_rescored,
    )  # fmt: skip
    decision = decide(
        ours.windows, theirs.windows, metric=team.headline_metric, seed=seed,
        noise_floor=_noise_floor(team, theirs, incumbent=incumbent, seed_floor=seed_floor, seed=seed),
        min_effect=plan.spec.evaluation.min_effect, guards=[*guards_of(team), *implied_guards(team, theirs)],
        complexity=(offered.num_lines, incumbent.num_lines),
    )  # fmt: skip
    record = replace(
        record, decision=decision, spans=ours.spans,
        metrics={"candidate": ours.medians(), "incumbent": theirs.medians()},
    )  # fmt: skip
    remark = ""
    if verdict.passed and decision.accepted:
        verdict, remark = _reviewed(team, offered, verdict, decision, record=record, incumbent=incumbent)
    record = replace(record, verdict=verdict, remark=remark)
    record = _outcome(record, verdict, decision)
    checkpoint = replace(offered, spans=ours.spans) if record.outcome is Outcome.ACCEPTED else None
    return RoundResult(record=record, checkpoint=checkpoint, series=series)


def _reviewed(
    team: Team, offered: Checkpoint, verdict: Verdict, decision: Decision, *, record: Round, incumbent: Checkpoint
) -> tuple[Verdict, str]:
    """What only a candidate that would be accepted is worth: its own tests where somebody wrote them anew, as
    certification will run them, and an agent's review, with its remark."""
    if team.implementer.origin:
        failed = tuple(team.judge.own_tests(offered.workspace))
        verdict = replace(verdict, refusals=failed, checks=(*verdict.checks, "own_tests"))
        if failed:
            return verdict, ""
    assert record.proposal is not None
    review = Review(
        workspace=offered.workspace, proposal=record.proposal, number=record.number, attempt=record.attempts,
        patch=_patch(team, offered.candidate, incumbent), verdict=verdict, decision=decision, metrics=record.metrics,
        spans={"candidate": record.spans, "incumbent": incumbent.spans},
    )  # fmt: skip
    try:
        reviewed = team.reviewer.review(review)
    except RefusedError as error:
        # an answer that cannot be used is no verdict, neither for the candidate nor against it
        raise InfraError(f"the judge's answer cannot be used: {_first_line(error)}") from error
    return replace(verdict, refusals=reviewed.refusals), reviewed.remark


def _noise_floor(team: Team, theirs: Series, *, incumbent: Checkpoint, seed_floor: float, seed: int) -> float:
    """The incumbent against itself: round 0's A/A series for the seed, and for a later one its own consecutive windows,
    because a runtime that serves many requests at once is steadier than a serial seed."""
    if not incumbent.assembled.components:
        return seed_floor
    try:
        logs = self_log_ratios(theirs.windows, metric=team.headline_metric)
    except RefusedError:
        return seed_floor  # a window without a value: the decision refuses it by itself
    return noise_floor(logs, seed=seed, num_pairs=len(theirs.windows))


def _measure(team: Team, server: Server, *, incumbent: Checkpoint, name: str, seed: int) -> dict[str, Series]:
    """The candidate, already up, beside a fresh start of the incumbent. Both are stopped afterwards."""
    plan = team.bench.plan
    servers = [server]
    try:
        server.pause()
        team.bench.build(incumbent.workspace)
        other = team.bench.serve(incumbent.workspace, name=incumbent.candidate.candidate_id)
        servers.append(other)
        return team.evaluator.compare(
            [
                Entrant(name=each, server=up, is_ours=True, is_judged=each == name)
                for each, up in ((name, server), (other.name, other))
            ],
            load=team.headline_load, pool=Pool.selection, seed=seed, num_pairs=plan.schedule.search_pairs,
            window_s=plan.schedule.search_window_s, warmup_s=plan.schedule.search_warmup_s, profiled=name,
        )  # fmt: skip
    finally:
        for each in servers:
            each.stop(drain_s=0)


def guards_of(team: Team) -> list[Guard]:
    """The absolute goals at the headline load, but for the headline itself, as bounds of the decision."""
    guards = []
    for goal in team.bench.plan.spec.goals[1:]:
        is_here = goal.load in ("", team.headline_load)
        limit = goal.max_gib if goal.max_gib is not None else goal.max_ms / 1000 if goal.max_ms is not None else None
        if is_here and (limit is not None or goal.min_per_s is not None):
            guards.append(Guard(metric=team.bench.metrics[goal.metric], max_value=limit, min_value=goal.min_per_s))
    return guards


def implied_guards(team: Team, theirs: Series) -> list[Guard]:
    """A latency must not be bought with another one: tokens that are held back and then sent fast halve TPOT at the
    cost of TTFT. What no goal speaks of may be `MAX_TRADE` worse than the incumbent's median; a throughput is bought
    with latency by right, and its bounds are the goals' to say."""
    if team.headline.rsplit("_p", 1)[0] not in (*TRADED, "itl"):
        return []
    goals = [goal for goal in team.bench.plan.spec.goals if goal.load in ("", team.headline_load)]
    spoken_of = {goal.metric.rsplit("_p", 1)[0] for goal in goals}
    medians = theirs.medians()
    return [
        Guard(metric=team.bench.metrics[name], max_value=medians[name] * (1 + MAX_TRADE))
        for latency in TRADED
        if latency not in spoken_of and (name := f"{latency}_p50") in medians
    ]


def _screening_outcome(screening: Screening) -> Outcome:
    classes = {refusal.reason_class for refusal in screening.refusals}
    if "timed_out" in classes:
        return Outcome.TIMED_OUT
    is_crash = classes & {"died", "build_failed", *(limit.value for limit in Exceeded)}
    return Outcome.CRASHED if is_crash else Outcome.REJECTED


def _outcome(record: Round, verdict: Verdict, decision: Decision) -> Round:
    """A refused candidate's numbers are recorded, never ranked."""
    if not verdict.passed:
        reason = verdict.refusals[0].feedback if verdict.refusals else "no check ran"
        return replace(record, outcome=Outcome.REJECTED, reason=f"refused: {reason}")
    outcome = Outcome.ACCEPTED if decision.accepted else Outcome.REJECTED
    return replace(record, outcome=outcome, reason=decision.reason)


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
