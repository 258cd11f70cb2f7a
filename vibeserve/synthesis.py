"""The outer loop: round 0, then proposals until the goal, a plateau or the budget ends it. Resumes from the journal."""

from __future__ import annotations

import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from vibeserve.agents import PlannerAgent, PlanningState
from vibeserve.benchmark import noise_floor, paired_log_ratios
from vibeserve.control import Phase, Steering
from vibeserve.core.documents import from_data, to_data
from vibeserve.core.nouns import Decision, Outcome, Proposal, Refusal, Round, Verdict
from vibeserve.errors import AgentCapError, AgentInfraError, InfraError, RefusedError
from vibeserve.journal import Journal
from vibeserve.planning import scored, scored_text
from vibeserve.roles.evaluator import Entrant, Series
from vibeserve.rounds import Checkpoint, RoundResult, Team, commit, expected_factor, run_round, tried_folder
from vibeserve.seeds import Seed
from vibeserve.skills import TargetFacts, applicable
from vibeserve.spec import ClockKind
from vibeserve.steered import choose, keys_of_round, look, why_round_ends
from vibeserve.workloads import Pool

SEARCH_ENDED = "search_ended"
"""event of the journal: why no further round was started"""
SEED_DISCOUNT = 0.8
MAX_INFRA_FAILURES = 2
"""rounds in a row that the machine may spoil before the run stops with an infrastructure error"""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Document: one round as the journal keeps it."""

    record: Round
    checkpoint: Checkpoint | None
    """of round 0 and of accepted rounds"""
    measurements: Any = None
    """windows by contender, facts of the machine, pairs that it spoilt"""
    spent: dict[str, float] = field(default_factory=dict)
    """seconds by activity (`core.spent`)"""
    num_discarded: int = 0
    """pairs of windows that were measured again"""


@dataclass(kw_only=True)
class Search:
    """State of the search: a fold over the journal's `round` events."""

    entries: list[Entry] = field(default_factory=list)
    incumbent: Checkpoint | None = None
    noise_floor: float = 0.0

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        if entry.checkpoint is not None:
            self.incumbent = entry.checkpoint
        if entry.record.outcome is Outcome.BASELINE and entry.record.decision is not None:
            self.noise_floor = entry.record.decision.noise_floor

    @property
    def num_without_gain(self) -> int:
        """Rounds since the last accepted one; those that the machine spoilt say nothing and do not count."""
        count = 0
        for entry in reversed(self.entries):
            if entry.record.outcome in (Outcome.ACCEPTED, Outcome.BASELINE):
                break
            count += entry.record.outcome is not Outcome.INFRA
        return count

    @property
    def num_infra(self) -> int:
        """Rounds in a row that ended as an infrastructure failure."""
        count = 0
        for entry in reversed(self.entries):
            if entry.record.outcome is not Outcome.INFRA:
                break
            count += 1
        return count


def synthesize(
    team: Team, *, seed: Seed, planner: PlannerAgent, facts: TargetFacts, journal: Journal, deadline_s: float,
    monotonic: Callable[[], float] = time.monotonic, steering: Steering | None = None,
) -> Search:  # fmt: skip
    """Search until nothing promises a gain, patience or rounds are spent, or `deadline_s` (of `monotonic`) comes near.

    `steering` brings what people ask of the run; without one it comes from the folder beside the journal. Every
    finished round is in `journal`; started again, the search goes on after the last of them. Raises RefusedError when
    the seed itself does not pass the gates: then nothing can be compared with it.
    """
    search = restore(team, journal)
    steering = steering or Steering(journal, spec=team.bench.plan.spec, progress=team.progress)
    if search.entries:
        team.progress.event("synthesize", f"resumed after round {search.entries[-1].record.number}")
        steering.book.settle(search.entries[-1].record)  # where it was killed between the two
    if search.incumbent is None:
        keep_round(team, search, journal, baseline_round(team, seed=seed))
    steering.announce(_planning_state(team, search, facts, steering))
    while True:
        look(
            team, steering, phase=Phase.PROPOSAL, number=len(search.entries) - 1,
            state=_planning_state(team, search, facts, steering),
        )  # fmt: skip
        if len(search.entries) > steering.spec.budget.rounds:
            break
        remaining_s = deadline_s + steering.wall_added_s - monotonic()
        stop = _next_round(team, search, journal, planner=planner, facts=facts, steering=steering, left_s=remaining_s)
        if stop and (steering.state.stopped or not steering.is_asked()):
            _end(team, journal, stop)
            break
    return search


def _planning_state(team: Team, search: Search, facts: TargetFacts, steering: Steering) -> PlanningState:
    """All that a planner may know, with what people have said."""
    assert search.incumbent is not None
    state = PlanningState(
        facts=facts, scaffold=team.scaffold, skills=team.skills, incumbent=search.incumbent.assembled,
        spans=search.incumbent.spans, workspace=search.incumbent.workspace,
        tried=tried_folder(team),
        records=[entry.record for entry in search.entries], min_effect=team.bench.plan.spec.evaluation.min_effect,
    )  # fmt: skip
    return steering.steered(state)


def _next_round(
    team: Team, search: Search, journal: Journal, *, planner: PlannerAgent, facts: TargetFacts, steering: Steering,
    left_s: float,
) -> str:  # fmt: skip
    """One more round; or why there is none."""
    state = _planning_state(team, search, facts, steering)
    is_queued = steering.next_proposal(state) is not None
    stop = steering.state.stopped or _why_stop(team, search, remaining_s=left_s, is_asked_for=is_queued)
    if stop:
        return stop
    try:
        seated = steering.agents.planner if steering.agents else planner
        return _one_round(team, search, journal, planner=seated, state=state, facts=facts, steering=steering)
    except (AgentCapError, AgentInfraError) as error:
        if isinstance(error, AgentInfraError) and error.is_lasting:
            raise
        steering.book.release(number=len(search.entries) - 1)
        return f"budget: {str(error).splitlines()[0]}"


def _one_round(
    team: Team, search: Search, journal: Journal, *, planner: PlannerAgent, state: PlanningState, facts: TargetFacts,
    steering: Steering,
) -> str:  # fmt: skip
    """Propose, carry out, record; returns why nothing was proposed, if nothing was."""
    assert search.incumbent is not None
    number = len(search.entries)
    try:
        choice = choose(planner, state, steering, number=number)
    except RefusedError as error:
        keep_round(team, search, journal, RoundResult(record=_without_candidate(error, number=number)))
        return ""
    if choice is None:
        return planner.why_stopped or _why_no_proposal(team, facts)
    proposal = choice.proposal
    if choice.refused is not None:
        record = _without_candidate(choice.refused, number=number, proposal=proposal)
        keep_round(team, search, journal, RoundResult(record=record))
        return ""
    text = f"{proposal.title}: {proposal.hypothesis}; forecast x{proposal.forecast_ratio:g}"
    team.progress.event(f"round {number}", text)
    team.pins = dict(state.pins)
    result = run_round(
        team, proposal, number=number, incumbent=search.incumbent, state=state, seed_floor=search.noise_floor,
        why_ends=lambda record: why_round_ends(team, steering, record, item=choice.item, state=state),
    )  # fmt: skip
    try:
        keep_round(team, search, journal, result)
    finally:
        if len(search.entries) > number:
            steering.book.settle(result.record, keys=keys_of_round(result.record, state))
    return ""


def _without_candidate(error: RefusedError, *, number: int, proposal: Proposal | None = None) -> Round:
    """A planner's answer that could not be used, or may not be tried: a round of its own, so that patience ends it."""
    refusals = tuple(reason for reason in error.reasons if isinstance(reason, Refusal))
    checks = tuple(sorted({refusal.gate for refusal in refusals})) or ("agent",)
    return Round(
        number=number, proposal=proposal, candidate=None, outcome=Outcome.REJECTED, reason=str(error).splitlines()[0],
        verdict=Verdict(refusals=refusals, checks=checks), attempts=0,
    )  # fmt: skip


def _end(team: Team, journal: Journal, why: str) -> None:
    journal.append(SEARCH_ENDED, {"why": why}, durable=False)
    team.progress.event("synthesize", why)


def _why_no_proposal(team: Team, facts: TargetFacts) -> str:
    cards = [skill.card for skill in team.skills if skill.card is not None]
    if any(applicable(card, facts=facts) is None for card in cards):
        return "no card that is left promises a gain"
    return "nothing applicable: no card fits this target; the seed goes on as it is"


def restore(team: Team, journal: Journal) -> Search:
    """The search as the journal left it; workspaces that are gone are checked out again."""
    search = Search()
    for event in journal.events("round"):
        search.add(_restored(team, from_data(Entry, event.data)))
    return search


def _restored(team: Team, entry: Entry) -> Entry:
    """The entry with its workspace in place, wherever the run's folder lies now."""
    if entry.checkpoint is None:
        return entry
    candidate = entry.checkpoint.candidate
    workspace = team.bench.run_dir / "workspaces" / candidate.candidate_id
    if not workspace.is_dir():
        # a folder with the right name is whole: a checkout that is interrupted leaves only the draft
        draft = workspace.with_name(f".{workspace.name}.draft")
        shutil.rmtree(draft, ignore_errors=True)
        team.store.checkout(candidate.commit, draft)
        draft.rename(workspace)
    team.clock.declare(candidate.candidate_id, factor=expected_factor(team.skills, entry.checkpoint.assembled))
    return replace(entry, checkpoint=replace(entry.checkpoint, workspace=workspace))


def baseline_round(team: Team, *, seed: Seed) -> RoundResult:
    """Round 0: the seed, gated like any candidate, and measured against itself for the noise floor."""
    started_s = team.monotonic()
    workspace = team.bench.run_dir / "workspaces" / "r00a1"
    shutil.rmtree(workspace, ignore_errors=True)
    seed.materialise(workspace)
    offered = commit(team, workspace, name="r00a1", proposal=None)
    draw = secrets.randbits(31)
    screening = team.judge.screen(workspace, name="r00a1", seed=draw)
    if screening.server is None:
        raise RefusedError(f"the seed is refused: {screening.refusals[0].feedback}", reasons=screening.refusals)
    series = _measure_twice(team, offered, screening.server, seed=draw)
    plan = team.bench.plan
    verdict, _ = team.judge.verdict(
        series["r00a1"].replies, workspace=workspace, before=screening.before, seed=draw, name="r00a1",
        max_replies=plan.spec.evaluation.num_rescored, added=series["r00a1"].refusals,
    )  # fmt: skip
    if not verdict.passed:
        raise RefusedError(f"the seed is refused: {verdict.refusals[0].feedback}", reasons=verdict.refusals)
    floor = noise_floor(
        paired_log_ratios(series["r00a1"].windows, series["r00a1-again"].windows, metric=team.headline_metric),
        seed=draw,
    )
    record = _baseline_record(offered, verdict, series, floor=floor, seconds=team.monotonic() - started_s)
    return RoundResult(record=record, checkpoint=replace(offered, spans=series["r00a1"].spans), series=series)


def _measure_twice(team: Team, offered: Checkpoint, server: Any, *, seed: int) -> dict[str, Series]:
    plan = team.bench.plan
    servers = [server]
    try:
        server.pause()
        twin = team.bench.serve(offered.workspace, name="r00a1-again")
        servers.append(twin)
        team.clock.declare("r00a1-again", factor=1.0)
        return team.evaluator.compare(
            [
                Entrant(name=each.name, server=each, is_ours=True, is_judged=each is server) for each in servers
            ],
            load=team.headline_load, pool=Pool.selection, seed=seed, num_pairs=plan.schedule.search_pairs,
            window_s=plan.schedule.search_window_s, warmup_s=plan.schedule.search_warmup_s, profiled="r00a1",
        )  # fmt: skip
    finally:
        for each in servers:
            each.stop(drain_s=0)


def _baseline_record(
    offered: Checkpoint, verdict: Verdict, series: dict[str, Series], *, floor: float, seconds: float
) -> Round:
    decision = Decision(accepted=True, reason="round 0", headline=None, noise_floor=floor)
    return Round(
        number=0, proposal=None, candidate=offered.candidate, outcome=Outcome.BASELINE,
        reason=f"the seed passes the gates; noise floor {floor:.1%} (A/A)", verdict=verdict, decision=decision,
        metrics={"candidate": series["r00a1"].medians(), "incumbent": series["r00a1-again"].medians()},
        spans=series["r00a1"].spans, seconds=seconds,
    )  # fmt: skip


def keep_round(team: Team, search: Search, journal: Journal, result: RoundResult) -> None:
    """Journal the round, then count it: what is not in the journal has not happened."""
    windows = {
        name: {"windows": row.windows, "facts": row.facts, "discarded": row.discarded}
        for name, row in result.series.items()
    }
    entry = Entry(
        record=result.record, checkpoint=result.checkpoint, measurements=to_data(windows),
        spent=team.bench.spent.take(),
        num_discarded=max((len(row.discarded) for row in result.series.values()), default=0),
    )  # fmt: skip
    journal.append("round", to_data(entry))
    search.add(entry)
    record = result.record
    is_fake = team.bench.plan.spec.evaluation.clock is ClockKind.fake
    text = f"{record.outcome.value}: {record.reason}{' (fake clock)' if is_fake else ''}"
    team.progress.event(f"round {record.number}", text, seconds=round(record.seconds, 1))
    forecast = scored(record)
    if forecast is not None:
        team.progress.event(f"round {record.number}", scored_text(forecast))
    if search.num_infra >= MAX_INFRA_FAILURES:
        raise InfraError(f"{search.num_infra} rounds in a row failed for the machine's reasons: {record.reason}")


def _why_stop(team: Team, search: Search, *, remaining_s: float, is_asked_for: bool = False) -> str:
    """Empty, or why no further round is started. A proposal that a person asked for does not wait for a gain."""
    patience = team.bench.plan.spec.search.patience
    if search.num_without_gain >= patience and not is_asked_for:
        return f"plateau: {patience} rounds in a row without a gain"
    device_s = sum(entry.spent.get("windows", 0.0) for entry in search.entries)
    if 0 < team.bench.plan.spec.budget.device_s <= device_s:
        return f"budget: {device_s:.0f} s of measuring, budget.device_s is {team.bench.plan.spec.budget.device_s:g}"
    needed_s = _round_estimate_s(search)
    if remaining_s < needed_s:
        left = f"{max(0.0, remaining_s):.0f} s are left before certification"
        return f"budget: {left} and a round takes about {needed_s:.0f} s"
    return ""


def _round_estimate_s(search: Search) -> float:
    """The longest round so far; round 0 alone is discounted, because it waits for the slow seed's replies."""
    later = [entry.record.seconds for entry in search.entries if entry.record.number > 0]
    return max(later) if later else SEED_DISCOUNT * sum(entry.record.seconds for entry in search.entries)
