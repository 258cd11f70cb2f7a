"""The build graph's nodes and an estimate of their minutes from the schedule."""

from __future__ import annotations

import dataclasses

from vibeserve.plan.nouns import PlanStep
from vibeserve.schedules import Schedule
from vibeserve.spec import ClockKind, Evaluation, ProfileKind, Spec

STARTUP_S = 15.0
"""start of one server, with imports and loading; peers with a compiler take longer the first time"""

GATES_S = 70.0
"""build, screening, probes and re-scoring of one candidate: SmolLM2 on two cores of an AMD EPYC"""

PROFILE_S = 25.0
"""of the seed and of an accepted candidate, with the start of its load"""

CERTIFY_GATES_S = 45.0
"""screening, the runtime's own tests"""

RESCORE_SHARE = 1.2
"""seconds of re-scoring per second of a certified window, on the same machine"""

GRAPH: dict[str, tuple[str, ...]] = {
    "weights": (),
    "reference": ("weights",),
    "baselines": ("weights",),
    "synthesize": ("reference", "baselines"),
    "certify": ("synthesize",),
    "package": ("certify",),
}


def scaled_schedule(schedule: Schedule, *, evaluation: Evaluation) -> Schedule:
    """`schedule` with every duration multiplied by `window_scale`; numbers of pairs and starts stay."""
    durations = {item.name for item in dataclasses.fields(schedule) if item.name.endswith("_s")}
    scale = evaluation.window_scale
    return dataclasses.replace(schedule, **{name: getattr(schedule, name) * scale for name in durations})


def plan_steps(spec: Spec, schedule: Schedule) -> tuple[PlanStep, ...]:
    """Steps in order, with the minutes they would take if every round used all its attempts."""
    seconds = {
        "weights": 20.0,
        "reference": 10.0,
        "baselines": len(spec.baseline) * (_startup_s(spec) + schedule.screen_window_s),
        "synthesize": _synthesize_s(spec, schedule, startup_s=_startup_s(spec)),
        "certify": _certify_s(spec, schedule),
        "package": 5.0,
    }
    # the search stops in time for what follows it
    others_s = sum(seconds.values()) - seconds["synthesize"]
    seconds["synthesize"] = max(0.0, min(seconds["synthesize"], spec.budget.wall_s - others_s))
    minutes = {name: round(value / 60, 2) for name, value in seconds.items()}
    return tuple(PlanStep(name=name, needs=needs, minutes=minutes[name]) for name, needs in GRAPH.items())


def _startup_s(spec: Spec) -> float:
    # under the fake clock the model is a toy and every peer is the scaffold
    return 3.0 if spec.evaluation.clock is ClockKind.fake else STARTUP_S


def _profile_s(evaluation: Evaluation) -> float:
    is_profiled = evaluation.profile in (ProfileKind.auto, ProfileKind.stacks)
    return PROFILE_S if is_profiled and evaluation.clock is ClockKind.real else 0.0


def _synthesize_s(spec: Spec, schedule: Schedule, *, startup_s: float) -> float:
    """Round 0 measures an A/A pair series for the noise floor, every attempt an A/B one; one attempt a round may be
    accepted and profiled. On a branch beside the incumbent there is a second series where the candidate may lead:
    counted for each."""
    budget, search, profile_s = spec.budget, spec.search, _profile_s(spec.evaluation)
    num_series = 1 + (search.width - 1) / search.width if search.policy == "beam" else 1
    series_s = 2 * schedule.search_pairs * (schedule.search_warmup_s + schedule.search_window_s)
    attempt_s = startup_s + GATES_S * (startup_s / STARTUP_S) + num_series * series_s
    rounds_s = budget.rounds * (budget.attempts * attempt_s + profile_s)
    return startup_s + series_s + profile_s + rounds_s


def _certify_s(spec: Spec, schedule: Schedule) -> float:
    """Every start measures the winner beside each required baseline; optional ones are screened."""
    num_required = max(1, sum(baseline.required for baseline in spec.baseline.values()))
    num_loads = len(spec.workload.loads) if spec.evaluation.loads == "all" else 1
    windows_s = schedule.certify_pairs * (schedule.certify_warmup_s + schedule.certify_window_s)
    rescored_s = RESCORE_SHARE * schedule.certify_starts * schedule.certify_pairs * schedule.certify_window_s
    num_servers = schedule.certify_pairs if schedule.is_fresh_per_window else 1
    start_s = 2 * (num_servers * _startup_s(spec) + num_loads * windows_s)
    audits_s = schedule.audit_budget_s + schedule.soak_s
    gates_s = CERTIFY_GATES_S + rescored_s if spec.evaluation.clock is ClockKind.real else 0.0
    return num_required * schedule.certify_starts * start_s + audits_s + gates_s
