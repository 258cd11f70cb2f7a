"""Round 0: the seed, gated like any candidate."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vibeserve.benchmark import noise_floor, paired_log_ratios
from vibeserve.core.nouns import Decision, Outcome, Round, Verdict
from vibeserve.errors import RefusedError, ServerError
from vibeserve.journal import Journal
from vibeserve.roles.evaluator import Entrant, Series
from vibeserve.rounds import Checkpoint, RoundResult, Team, commit_seed
from vibeserve.rounds.profiling import profiled_checkpoint, with_profile
from vibeserve.seeds import Seed
from vibeserve.workloads import Pool

SEEDED = "seeded"
"""event of the journal: which of the seeds round 0 starts from, and why those before it were refused"""


@dataclass(frozen=True, kw_only=True)
class Seeded:
    """Document: the seed that passed."""

    origin: str
    position: int
    """among those that there were; 0 = the declared one itself"""
    refused: tuple[str, ...] = ()
    """of each before it: its origin and why"""
    schema_version: int = 1


def first_that_passes(team: Team, seeds: Sequence[Seed], *, journal: Journal) -> RoundResult:
    """Round 0 from the first of `seeds` that the gates let pass; where there are several, the journal says which.
    RefusedError of the last one where none does."""
    refused: list[str] = []
    for position, seed in enumerate(seeds):
        try:
            result = baseline_round(team, seed=seed)
        except (RefusedError, ServerError) as error:
            text = f"{seed.origin}: {str(error).splitlines()[0]}"
            if position == len(seeds) - 1:
                raise
            refused.append(text)
            team.progress.event("synthesize", f"{text}; next, {seeds[position + 1].origin}")
            continue
        if len(seeds) > 1:
            journal.append(SEEDED, Seeded(origin=seed.origin, position=position, refused=tuple(refused)))
        return result
    raise ValueError("a search needs a seed")


def baseline_round(team: Team, *, seed: Seed) -> RoundResult:
    """Round 0: the seed, gated like any candidate, and measured against itself for the noise floor."""
    started_s = team.monotonic()
    workspace = team.bench.run_dir / "workspaces" / "r00a1"
    shutil.rmtree(workspace, ignore_errors=True)
    seed.materialise(workspace)
    offered = commit_seed(team, workspace, name="r00a1", origin=seed.origin)
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
    return RoundResult(record=record, checkpoint=profiled_checkpoint(offered, series["r00a1"]), series=series)


def _measure_twice(team: Team, offered: Checkpoint, server: Any, *, seed: int) -> dict[str, Series]:
    plan = team.bench.plan
    servers = [server]
    try:
        server.pause()
        twin = team.bench.serve(offered.workspace, name="r00a1-again")
        servers.append(twin)
        team.clock.declare("r00a1-again", factor=1.0)
        series = team.evaluator.compare(
            [
                Entrant(name=each.name, server=each, is_ours=True, is_judged=each is server) for each in servers
            ],
            load=team.headline_load, pool=Pool.selection, seed=seed, num_pairs=plan.schedule.search_pairs,
            window_s=plan.schedule.search_window_s, warmup_s=plan.schedule.search_warmup_s, profiled="r00a1",
        )  # fmt: skip
        return with_profile(team, series, server, offered=offered)
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
