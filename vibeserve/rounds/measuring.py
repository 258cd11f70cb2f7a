"""A candidate through the gates and beside the incumbent, up to its verdict and decision."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from vibeserve.agents import Review
from vibeserve.benchmark import AGAIN_FACTOR, Guard, decide, is_undecided, noise_floor, self_log_ratios
from vibeserve.core.nouns import Activation, ActivationState, Decision, Outcome, Round, Verdict
from vibeserve.errors import InfraError, RefusedError
from vibeserve.roles.evaluator import Entrant, Series
from vibeserve.roles.judge import Screening
from vibeserve.rounds.measured import Measured, keep_measured, kept_measured, measurement_key
from vibeserve.rounds.nouns import Checkpoint, RoundResult, Team, first_line
from vibeserve.rounds.offering import patch_of
from vibeserve.rounds.profiling import activation_of, profiled_checkpoint, with_profile
from vibeserve.sandbox import Exceeded
from vibeserve.service import Server
from vibeserve.workloads import Pool

TRADED = ("ttft", "tpot", "e2el")
"""latencies that a candidate could buy one of with another"""
MAX_TRADE = 0.1
"""how much worse the others may become, as a share"""


@dataclass(frozen=True, kw_only=True)
class Ground:
    """What a round starts from and what it has to beat; one and the same, unless a policy extends a branch."""

    parent: Checkpoint
    incumbent: Checkpoint
    seed_floor: float
    """noise floor of round 0"""
    lead: float = 0.0
    """log-ratio by which the incumbent is ahead of the parent, as far as the search knows"""

    @property
    def is_branch(self) -> bool:
        return self.parent.candidate.candidate_id != self.incumbent.candidate.candidate_id

    @property
    def opponents(self) -> tuple[str, ...]:
        return (self.parent.candidate.candidate_id, self.incumbent.candidate.candidate_id)


def judge_and_measure(team: Team, offered: Checkpoint, *, record: Round, ground: Ground, name: str) -> RoundResult:
    """Screen, measure beside the parent, judge, decide. A candidate of a branch that is better than its parent, and by
    that may be better than the incumbent, is measured beside the incumbent too: nothing else makes it the incumbent.

    What an interrupted round has measured of this very candidate is taken as it is.
    """
    key = measurement_key(offered, opponents=ground.opponents)
    measured = kept_measured(team, name, key=key)
    if measured is not None:
        team.progress.event(f"round {record.number}", f"{name} was measured before the run was interrupted")
        return _concluded(team, offered, measured, record=record, ground=ground)
    screening = team.judge.screen(offered.workspace, name=name, seed=secrets.randbits(31))
    if screening.server is None:
        return refused_result(record, screening)
    measured = _measured(
        team, offered, screening.server, screening=screening, name=name, ground=ground, record=record, key=key
    )
    keep_measured(team, name, measured)
    return _concluded(team, offered, measured, record=record, ground=ground)


def _measured(
    team: Team, offered: Checkpoint, server: Server, *, screening: Screening, name: str, ground: Ground, record: Round,
    key: str,
) -> Measured:  # fmt: skip
    started_s, number = team.monotonic(), record.number
    duel = _decided_duel(
        team, offered, server, screening=screening, opponent=ground.parent, name=name, ground=ground, number=number
    )
    decision, series, against_parent = duel.decision, duel.series, None
    if ground.is_branch:
        against_parent = decision.headline
        if duel.verdict.passed and is_challenger(decision, lead=ground.lead):
            beside_parent = {f"{each}-beside-parent": row for each, row in series.items()}
            duel = _decided_duel(
                team, offered, team.bench.serve(offered.workspace, name=name), screening=screening,
                opponent=ground.incumbent, name=name, ground=ground, number=number,
            )  # fmt: skip
            decision, series = duel.decision, beside_parent | duel.series
        else:
            decision = _left_on_branch(duel, ground=ground)
    measured = Measured(
        key=key, ours=duel.ours, theirs=duel.theirs, verdict=duel.verdict, decision=decision, series=series,
        is_beside_incumbent=duel.opponent == ground.incumbent, against_parent=against_parent,
    )  # fmt: skip
    if not (duel.verdict.passed and decision.accepted):
        return measured
    return _activated(
        team, offered, measured, screening=screening, name=name, ground=ground, record=record,
        took_s=team.monotonic() - started_s,
    )  # fmt: skip


def _activated(
    team: Team, offered: Checkpoint, measured: Measured, *, screening: Screening, name: str, ground: Ground,
    record: Round, took_s: float,
) -> Measured:  # fmt: skip
    """With what its profile says of the new path. Where nothing of what the proposal changes was seen to run, the gain
    may be chance: it is asked of an A/B, as far as there is time for one."""
    assert record.proposal is not None
    found = activation_of(team, record.proposal, measured.ours.profile, offered=offered, incumbent=ground.parent)
    measured = replace(measured, activation=found)
    if found is None or found.state is not ActivationState.NOT_ACTIVATED:
        return measured
    if team.search_left_s() <= AGAIN_FACTOR * took_s:
        text = f"{found.text}; no time is left for an A/B with the path off, so the measurement stands by itself"
        return replace(measured, activation=replace(found, text=text))
    team.progress.event(
        f"round {record.number}", f"not activated, measured once more beside the path off: {found.text}"
    )
    return _beside_path_off(
        team, offered, measured, found, screening=screening, name=name, ground=ground, record=record
    )


def _beside_path_off(
    team: Team, offered: Checkpoint, measured: Measured, first: Activation, *, screening: Screening, name: str,
    ground: Ground, record: Round,
) -> Measured:  # fmt: skip
    """The parent is the path switched off: both are started afresh and measured twice as long, and that comparison
    decides alone."""
    assert record.proposal is not None
    again = _duel(
        team, offered, team.bench.serve(offered.workspace, name=name), screening=screening, opponent=ground.parent,
        name=name, ground=ground, num_pairs=AGAIN_FACTOR * team.bench.plan.schedule.search_pairs, is_path_off=True,
    )  # fmt: skip
    profile = again.ours.profile
    found = activation_of(team, record.proposal, profile, offered=offered, incumbent=ground.parent) or first
    decision = _path_off_decision(again.decision, measured.decision, found, ground=ground)
    series = {f"{each}-before-path-off": row for each, row in measured.series.items()} | again.series
    if ground.is_branch:
        if again.verdict.passed and decision.accepted:
            # it stands beside the incumbent as it was measured there; what is new is its gain over the parent
            return replace(
                measured, decision=decision, series=series, activation=found, against_parent=again.decision.headline
            )
        measured = replace(measured, against_parent=again.decision.headline)
    return replace(
        measured, ours=again.ours, theirs=again.theirs, verdict=again.verdict, decision=decision, series=series,
        is_beside_incumbent=not ground.is_branch, activation=found,
    )  # fmt: skip


def _path_off_decision(again: Decision, before: Decision, found: Activation, *, ground: Ground) -> Decision:
    """What the A/B says. On a branch its ratio is over the parent, which is none over the incumbent."""
    is_unseen = found.state is ActivationState.NOT_ACTIVATED
    told = again.reason.removeprefix("headline: ")
    if again.accepted:
        reason = before.reason if ground.is_branch else again.reason
        shown = f"again beside the path off: {told}" if ground.is_branch else "again beside the path off"
        credit = f"{reason}; {shown}, but nothing of what it changes was seen to run" if is_unseen else reason
        return replace(before if ground.is_branch else again, reason=credit)
    why = f"not activated: {found.text}; " if is_unseen else ""
    reason = f"{why}beside the path off, measured again: {told}"
    return replace(again, accepted=False, reason=reason, headline=None if ground.is_branch else again.headline)


def refused_result(record: Round, screening: Screening) -> RoundResult:
    """Of a candidate that the screening refused."""
    verdict = Verdict(refusals=screening.refusals, checks=screening.checks)
    outcome = _screening_outcome(screening)
    return RoundResult(record=replace(record, outcome=outcome, reason=screening.refusals[0].feedback, verdict=verdict))


@dataclass(frozen=True, kw_only=True)
class _Duel:
    """A candidate beside one checkpoint."""

    opponent: Checkpoint
    ours: Series
    theirs: Series
    verdict: Verdict
    decision: Decision
    before: dict[str, Series] = field(default_factory=dict)
    """a first measurement that decided nothing"""

    @property
    def series(self) -> dict[str, Series]:
        return {f"{key}-undecided": row for key, row in self.before.items()} | {
            each.name: each for each in (self.ours, self.theirs)
        }


def _decided_duel(
    team: Team, offered: Checkpoint, server: Server, *, screening: Screening, opponent: Checkpoint, name: str,
    ground: Ground, number: int,
) -> _Duel:  # fmt: skip
    """The duel; where the interval is too wide for a gain that is large enough, a second one, from fresh starts and
    twice as long, that decides alone: numbers of the first that were high by chance have no say in it."""
    started_s = team.monotonic()
    first = _duel(team, offered, server, screening=screening, opponent=opponent, name=name, ground=ground)
    evaluation = team.bench.plan.spec.evaluation
    is_open = first.verdict.passed and is_undecided(first.decision, min_effect=evaluation.min_effect)
    needed_s = AGAIN_FACTOR * (team.monotonic() - started_s)
    if not (is_open and evaluation.measure_again and team.search_left_s() > needed_s):
        return first
    told = first.decision.reason.removeprefix("headline: ")
    team.progress.event(f"round {number}", f"undecided, measured once more, twice as long: {told}")
    server = team.bench.serve(offered.workspace, name=name)
    again = _duel(
        team, offered, server, screening=screening, opponent=opponent, name=name, ground=ground,
        num_pairs=AGAIN_FACTOR * team.bench.plan.schedule.search_pairs,
    )  # fmt: skip
    decision = replace(again.decision, reason=f"{again.decision.reason}; undecided at first: {told}")
    return replace(again, decision=decision, before=first.series)


def _duel(
    team: Team, offered: Checkpoint, server: Server, *, screening: Screening, opponent: Checkpoint, name: str,
    ground: Ground, num_pairs: int = 0, is_path_off: bool = False,
) -> _Duel:  # fmt: skip
    plan = team.bench.plan
    seed = secrets.randbits(31)  # drawn after the candidate is frozen

    def decided(series: dict[str, Series]) -> Decision:
        ours, theirs = series[name], series[opponent.candidate.candidate_id]
        return decide(
            ours.windows, theirs.windows, metric=team.headline_metric, seed=seed,
            noise_floor=_noise_floor(team, theirs, opponent=opponent, seed_floor=ground.seed_floor, seed=seed),
            min_effect=plan.spec.evaluation.min_effect, guards=[*guards_of(team), *implied_guards(team, theirs)],
            complexity=(offered.num_lines, opponent.num_lines),
        )  # fmt: skip

    def is_worth_a_profile(series: dict[str, Series]) -> bool:
        return (opponent == ground.incumbent or is_path_off) and decided(series).accepted

    series = _measure(
        team, server, opponent=opponent, offered=offered, seed=seed, is_worth_a_profile=is_worth_a_profile,
        num_pairs=num_pairs or plan.schedule.search_pairs,
    )  # fmt: skip
    ours, theirs = series[name], series[opponent.candidate.candidate_id]
    verdict, _ = team.judge.verdict(
        ours.replies, workspace=offered.workspace, before=screening.before, seed=seed, name=name,
        max_replies=plan.spec.evaluation.num_rescored, added=ours.refusals,
    )  # fmt: skip
    return _Duel(opponent=opponent, ours=ours, theirs=theirs, verdict=verdict, decision=decided(series))


def is_challenger(decision: Decision, *, lead: float) -> bool:
    """It may be ahead of the incumbent, by the upper end of its interval over the parent."""
    return decision.headline is not None and decision.accepted and math.log(decision.headline.ci_high) > lead


def _left_on_branch(duel: _Duel, *, ground: Ground) -> Decision:
    """Not measured beside the incumbent: its ratio over the parent is no ratio over the incumbent."""
    headline = duel.decision.headline
    if headline is None:
        return duel.decision
    about = headline.ratio / math.exp(ground.lead)
    text = f"{duel.decision.reason} over {ground.parent.candidate.candidate_id}; about x{about:.3f} of the incumbent"
    return replace(duel.decision, accepted=False, reason=f"branch: {text}", headline=None)


def _concluded(
    team: Team, offered: Checkpoint, measured: Measured, *, record: Round, ground: Ground
) -> RoundResult:
    side = "incumbent" if measured.is_beside_incumbent else "parent"
    ours, verdict, decision = measured.ours, measured.verdict, measured.decision
    record = replace(
        record, decision=decision, spans=ours.spans, activation=measured.activation,
        metrics={"candidate": ours.medians(), side: measured.theirs.medians()},
    )  # fmt: skip
    remark = ""
    if verdict.passed and decision.accepted:
        verdict, remark = _reviewed(team, offered, verdict, decision, record=record, parent=ground.parent)
    record = _outcome(replace(record, verdict=verdict, remark=remark), verdict, decision)
    checkpoint = profiled_checkpoint(offered, ours)
    result = RoundResult(record=record, series=measured.series, against_parent=measured.against_parent)
    if record.outcome is not Outcome.ACCEPTED:
        return replace(result, kept=None if record.is_refused else checkpoint)
    return replace(result, checkpoint=checkpoint)


def _reviewed(
    team: Team, offered: Checkpoint, verdict: Verdict, decision: Decision, *, record: Round, parent: Checkpoint
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
        patch=patch_of(team, offered.candidate, parent), verdict=verdict, decision=decision, metrics=record.metrics,
        spans={"candidate": record.spans, "incumbent": parent.spans},
    )  # fmt: skip
    try:
        reviewed = team.reviewer.review(review)
    except RefusedError as error:
        # an answer that cannot be used is no verdict, neither for the candidate nor against it
        raise InfraError(f"the judge's answer cannot be used: {first_line(error)}") from error
    return replace(verdict, refusals=reviewed.refusals), reviewed.remark


def _noise_floor(team: Team, theirs: Series, *, opponent: Checkpoint, seed_floor: float, seed: int) -> float:
    """The opponent against itself: round 0's A/A series for the seed, and for a later one its own consecutive windows,
    because a runtime that serves many requests at once is steadier than a serial seed."""
    if not opponent.assembled.components:
        return seed_floor
    try:
        logs = self_log_ratios(theirs.windows, metric=team.headline_metric)
    except RefusedError:
        return seed_floor  # a window without a value: the decision refuses it by itself
    return noise_floor(logs, seed=seed, num_pairs=len(theirs.windows))


def _measure(
    team: Team, server: Server, *, opponent: Checkpoint, offered: Checkpoint, seed: int,
    is_worth_a_profile: Callable[[dict[str, Series]], bool], num_pairs: int,
) -> dict[str, Series]:  # fmt: skip
    """The candidate, already up, beside a fresh start of the opponent; what would be accepted is profiled then. Both
    are stopped afterwards."""
    plan, name = team.bench.plan, offered.candidate.candidate_id
    servers = [server]
    try:
        server.pause()
        team.bench.build(opponent.workspace)
        other = team.bench.serve(opponent.workspace, name=opponent.candidate.candidate_id)
        servers.append(other)
        series = team.evaluator.compare(
            [
                Entrant(name=each, server=up, is_ours=True, is_judged=each == name)
                for each, up in ((name, server), (other.name, other))
            ],
            load=team.headline_load, pool=Pool.selection, seed=seed, num_pairs=num_pairs,
            window_s=plan.schedule.search_window_s, warmup_s=plan.schedule.search_warmup_s, profiled=name,
        )  # fmt: skip
        return with_profile(team, series, server, offered=offered) if is_worth_a_profile(series) else series
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
