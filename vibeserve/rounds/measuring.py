"""A candidate through the gates and beside the incumbent, up to its verdict and decision."""

from __future__ import annotations

import secrets
from dataclasses import replace

from vibeserve.agents import Review
from vibeserve.benchmark import Guard, decide, noise_floor, self_log_ratios
from vibeserve.core.nouns import Decision, Outcome, Round, Verdict
from vibeserve.errors import InfraError, RefusedError
from vibeserve.roles.evaluator import Entrant, Series
from vibeserve.roles.judge import Screening
from vibeserve.rounds.nouns import Checkpoint, RoundResult, Team, first_line
from vibeserve.rounds.offering import patch_of
from vibeserve.sandbox import Exceeded
from vibeserve.service import Server
from vibeserve.workloads import Pool

TRADED = ("ttft", "tpot", "e2el")
"""latencies that a candidate could buy one of with another"""
MAX_TRADE = 0.1
"""how much worse the others may become, as a share"""


def judge_and_measure(
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
        max_replies=plan.spec.evaluation.num_rescored, added=ours.refusals,
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
        patch=patch_of(team, offered.candidate, incumbent), verdict=verdict, decision=decision, metrics=record.metrics,
        spans={"candidate": record.spans, "incumbent": incumbent.spans},
    )  # fmt: skip
    try:
        reviewed = team.reviewer.review(review)
    except RefusedError as error:
        # an answer that cannot be used is no verdict, neither for the candidate nor against it
        raise InfraError(f"the judge's answer cannot be used: {first_line(error)}") from error
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
