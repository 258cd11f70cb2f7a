"""The build graph's nodes and an estimate of their minutes from the schedule."""

from __future__ import annotations

import dataclasses

from vibeserve.plan.nouns import PlanStep
from vibeserve.schedules import Schedule
from vibeserve.spec import ClockKind, Evaluation, Level, ProfileKind, Spec

STARTUP_S = 15.0
"""start of one server, with imports and loading; peers with a compiler take longer the first time"""

GATES_S = 70.0
"""build, screening, probes and re-scoring of one candidate: SmolLM2 on two cores of an AMD EPYC"""

SEED_GATES_S = 110.0
"""the same of round 0's runtime, which answers slowly and whose longest replies are waited for"""

CALIBRATION_S = 22.0
"""ramp and window of a peer in one dtype; most have two"""

PROFILE_S = 25.0
"""of the seed and of an accepted candidate, with the start of its load"""

CERTIFY_GATES_S = 120.0
"""thorough screening, the runtime's own tests"""

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


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchForecast:
    """What the budget's wall time leaves for the search."""

    num_rounds: float
    """beside round 0, with all their attempts; 0 where there is no time for one"""
    all_rounds_wall_s: float
    """`budget.wall_s` that has room for all of `budget.rounds`"""


def search_forecast(spec: Spec, schedule: Schedule) -> SearchForecast:
    """From the same estimates as the steps' minutes."""
    first_s, round_s = _round_0_s(spec, schedule), _round_s(spec, schedule)
    others_s = _others_s(spec, schedule)
    left_s = spec.budget.wall_s - others_s - first_s
    return SearchForecast(
        num_rounds=min(float(spec.budget.rounds), max(0.0, left_s / round_s)),
        all_rounds_wall_s=others_s + first_s + spec.budget.rounds * round_s,
    )


def plan_steps(spec: Spec, schedule: Schedule) -> tuple[PlanStep, ...]:
    """Steps in order, with the minutes they would take if every round used all its attempts."""
    seconds = _seconds(spec, schedule)
    # the search stops in time for what follows it
    left_s = spec.budget.wall_s - _others_s(spec, schedule)
    seconds["synthesize"] = max(0.0, min(seconds["synthesize"], left_s))
    minutes = {name: round(value / 60, 2) for name, value in seconds.items()}
    return tuple(PlanStep(name=name, needs=needs, minutes=minutes[name]) for name, needs in GRAPH.items())


def _seconds(spec: Spec, schedule: Schedule) -> dict[str, float]:
    return {
        "weights": 20.0,
        "reference": 10.0,
        "baselines": _baselines_s(spec, schedule),
        "synthesize": _round_0_s(spec, schedule) + spec.budget.rounds * _round_s(spec, schedule),
        "certify": _certify_s(spec, schedule),
        "package": 5.0,
    }


def _others_s(spec: Spec, schedule: Schedule) -> float:
    """Of all steps but the search."""
    return sum(seconds for name, seconds in _seconds(spec, schedule).items() if name != "synthesize")


def _startup_s(spec: Spec) -> float:
    # under the fake clock the model is a toy and every peer is the scaffold
    return 3.0 if spec.evaluation.clock is ClockKind.fake else STARTUP_S


def _profile_s(evaluation: Evaluation) -> float:
    is_profiled = evaluation.profile in (ProfileKind.auto, ProfileKind.stacks)
    return PROFILE_S if is_profiled and evaluation.clock is ClockKind.real else 0.0


def _baselines_s(spec: Spec, schedule: Schedule) -> float:
    """Every baseline that level and clock measure runs in two dtypes, under load."""
    if spec.evaluation.clock is ClockKind.fake:
        return len(spec.baseline) * (_startup_s(spec) + schedule.screen_window_s)
    num = len(spec.baseline) if spec.budget.level is not Level.quick else _num_required(spec)
    return num * 2 * (STARTUP_S + CALIBRATION_S)


def _num_required(spec: Spec) -> int:
    return max(1, sum(baseline.required for baseline in spec.baseline.values()))


def _gates_s(spec: Spec, seconds: float) -> float:
    """`seconds` of gates on a real model, or the share of them that a toy takes."""
    return seconds * _startup_s(spec) / STARTUP_S


def _series_s(schedule: Schedule) -> float:
    return 2 * schedule.search_pairs * (schedule.search_warmup_s + schedule.search_window_s)


def _round_0_s(spec: Spec, schedule: Schedule) -> float:
    """An A/A pair series for the noise floor, and a profile."""
    is_real = spec.evaluation.clock is ClockKind.real
    gates_s = _gates_s(spec, SEED_GATES_S if is_real else GATES_S)
    return _startup_s(spec) + gates_s + _series_s(schedule) + _profile_s(spec.evaluation)


def _round_s(spec: Spec, schedule: Schedule) -> float:
    """Every attempt measures an A/B pair series; one attempt a round may be accepted and profiled. On a branch beside
    the incumbent there is a second series where the candidate may lead: counted for each."""
    search = spec.search
    num_series = 1 + (search.width - 1) / search.width if search.policy == "beam" else 1
    attempt_s = _startup_s(spec) + _gates_s(spec, GATES_S) + num_series * _series_s(schedule)
    return spec.budget.attempts * attempt_s + _profile_s(spec.evaluation)


def _certify_s(spec: Spec, schedule: Schedule) -> float:
    """Every start measures the winner beside the required baselines and the best of the optional ones, which are
    screened before."""
    num_required = _num_required(spec)
    num_optional = max(0, len(spec.baseline) - num_required) if spec.budget.level is not Level.quick else 0
    num_contenders = 1 + num_required + (num_optional > 0)
    num_loads = len(spec.workload.loads) if spec.evaluation.loads == "all" else 1
    windows_s = schedule.certify_pairs * (schedule.certify_warmup_s + schedule.certify_window_s)
    rescored_s = RESCORE_SHARE * schedule.certify_starts * schedule.certify_pairs * schedule.certify_window_s
    num_servers = schedule.certify_pairs if schedule.is_fresh_per_window else 1
    start_s = num_contenders * (num_servers * _startup_s(spec) + num_loads * windows_s)
    audits_s = schedule.audit_budget_s + schedule.soak_s
    gates_s = CERTIFY_GATES_S + rescored_s if spec.evaluation.clock is ClockKind.real else 0.0
    screens_s = num_optional * (_startup_s(spec) + schedule.screen_window_s)
    return schedule.certify_starts * start_s + screens_s + audits_s + gates_s
