"""Goals beyond the roofline, and how far a ratio can go."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace

import pytest
from plan_samples import CPU, FACTS, H100, LLAMA_8B, SMOLLM2, THROUGHPUT, chat, declared, floors_of, spec_of

from vibeserve.errors import SpecError
from vibeserve.plan import compile_plan
from vibeserve.plan.ceilings import compute_ceilings
from vibeserve.plan.floors import Floors
from vibeserve.plan.goals import ratio_bounds, refuse_unreachable, slack_of
from vibeserve.plan.nouns import RatioBound
from vibeserve.plan.unmeasured import compile_unmeasured
from vibeserve.spec import BaselineClass, Goal, Load, Precision, Sandbox, Spec, Tier


def judged(spec: Spec, *, is_measured: bool = False) -> tuple[RatioBound, ...]:
    """The ratio bounds, unless a goal is refused."""
    roof = replace(floors_of(spec).roof, is_measured=is_measured)
    ceilings = compute_ceilings(spec, Floors(spec, roof))
    ratios = ratio_bounds(spec, ceilings)
    refuse_unreachable(spec, ceilings, ratios)
    return ratios


def refused(spec: Spec, *, is_measured: bool = False) -> str:
    with pytest.raises(SpecError) as caught:
        judged(spec, is_measured=is_measured)
    return str(caught.value)


def on_cpu(*goals: Goal, **changes: object) -> Spec:
    """SmolLM2 at 15 GB/s: the ceiling at c8 is 410.1 tok/s, a step alone takes 18.13 ms."""
    return spec_of(SMOLLM2, CPU, goals=list(goals), **changes)


@pytest.mark.parametrize(
    ("goal", "text"),
    [
        (
            Goal(metric="output_throughput", load="c8", min_per_s=411),
            "output_throughput 411 tok/s is unreachable: ceiling 410.1 tok/s (bandwidth, load c8)",
        ),
        (
            Goal(metric="request_throughput", load="c8", min_per_s=6.5),
            "request_throughput 6.5 req/s is unreachable: ceiling 6.408 req/s (bandwidth, load c8)",
        ),
        (
            Goal(metric="goodput", load="c8", min_per_s=6.5),
            "goodput 6.5 req/s is unreachable: ceiling 6.408 req/s (bandwidth, load c8)",
        ),
        (
            Goal(metric="ttft_p99", load="c1", max_ms=17),
            "ttft_p99 17 ms is unreachable: floor 17.94 ms (bandwidth, load c1)",
        ),
        (
            Goal(metric="tpot_p50", load="c1", max_ms=18),
            "tpot_p50 18 ms is unreachable: floor 18.13 ms (bandwidth, load c1)",
        ),
        (
            Goal(metric="e2el_p50", load="c1", max_ms=1000),
            "e2el_p50 1000 ms is unreachable: floor 1160 ms (bandwidth, load c1)",
        ),
        (
            Goal(metric="peak_memory", max_gib=0.25),
            "peak_memory 0.25 GiB is unreachable: floor 0.2533 GiB (weights and one sequence, load c8)",
        ),
    ],
)
def test_an_absolute_goal_beyond_its_ceiling_is_refused(goal: Goal, text: str) -> None:
    assert refused(on_cpu(goal)).splitlines() == [
        "a goal lies beyond its roofline",
        f"  goals[0]: {text}",
        "next: weaken the goal, or declare other hardware",
    ]


def test_an_absolute_goal_within_its_ceiling_passes() -> None:
    judged(on_cpu(Goal(metric="output_throughput", load="c8", min_per_s=409), Goal(metric="itl_p50", max_ms=0.001)))


def test_more_than_an_open_loop_offers_is_unreachable() -> None:
    workload = chat(loads={"r2": Load(rate_per_s=2.0)}, headline_load="r2")
    goal = Goal(metric="output_throughput", load="r2", min_per_s=300)
    assert "ceiling 256 tok/s (offered load, load r2)" in refused(spec_of(LLAMA_8B, H100, workload, goals=[goal]))


def test_a_measured_bandwidth_refuses_only_beyond_its_drift() -> None:
    judged(on_cpu(Goal(metric="output_throughput", load="c8", min_per_s=800)), is_measured=True)
    text = refused(on_cpu(Goal(metric="output_throughput", load="c8", min_per_s=830)), is_measured=True)
    assert "unreachable: ceiling 410.1 tok/s (measured bandwidth, load c8)" in text


def test_a_reading_of_a_busy_machine_refuses_only_what_no_reading_could_allow() -> None:
    roof = replace(floors_of(on_cpu()).roof, is_measured=True, is_disturbed=True)
    for min_per_s, is_refused in ((8000, False), (8300, True)):
        spec = on_cpu(Goal(metric="output_throughput", load="c8", min_per_s=min_per_s))
        ceilings = compute_ceilings(spec, Floors(spec, roof))
        with pytest.raises(SpecError, match=r"ceiling 410\.1 tok/s") if is_refused else nullcontext():
            refuse_unreachable(spec, ceilings, (), measured_slack=slack_of(roof))


def test_a_bandwidth_that_nobody_measured_refuses_nothing() -> None:
    spec = spec_of(SMOLLM2, replace(CPU, bandwidth_gb_s=0.0), goals=[Goal(metric="ttft_p50", load="c8", max_ms=1e-4)])
    spec.sandbox = Sandbox(tier=Tier.C, allow_none=True)
    compile_unmeasured(spec, facts=replace(FACTS, bandwidth_gb_s=0.0))
    with pytest.raises(SpecError, match=r"goals\[0\]: ttft_p50 0.0001 ms is unreachable: floor 17.* ms \(measured b"):
        compile_plan(spec, facts=FACTS)


def test_a_reading_of_a_busy_machine_is_noted() -> None:
    spec = spec_of(SMOLLM2, replace(CPU, bandwidth_gb_s=0.0), sandbox=Sandbox(tier=Tier.C, allow_none=True))
    busy = replace(FACTS, bandwidth_gb_s=2.6, is_bandwidth_disturbed=True)
    note = (
        "the bandwidth, 2.6 GB/s, was read while other work waited for cores and is not reliable: it refuses a goal "
        "only beyond 20 times what it allows"
    )
    assert note in compile_plan(spec, facts=busy).notes
    assert note not in compile_plan(spec, facts=replace(busy, is_bandwidth_disturbed=False)).notes


def test_without_a_declared_figure_the_best_ratio_is_unknown() -> None:
    (bound,) = judged(on_cpu(THROUGHPUT))
    assert bound.ceiling == pytest.approx(410.1, rel=1e-3)
    assert (bound.baseline, bound.declared, bound.max_ratio) == ("", None, None)


def test_a_declared_figure_bounds_the_ratio() -> None:
    (bound,) = judged(on_cpu(THROUGHPUT, baseline={"vllm": declared("output_throughput", 100.0)}))
    assert (bound.baseline, bound.declared) == ("vllm", 100.0)
    assert bound.max_ratio == pytest.approx(4.101, rel=1e-3)


def test_the_hardest_declared_member_of_a_class_bounds_most() -> None:
    peers = {
        "vllm": declared("output_throughput", 100.0),
        "transformers_cb": declared("output_throughput", 200.0, load="c8"),
        # another class, another precision, another load, another metric: none of them counts
        "transformers": replace(declared("output_throughput", 300.0), baseline_class=BaselineClass.naive),
        "llama_cpp": replace(declared("output_throughput", 300.0), precision=Precision.any),
        "sglang": declared("output_throughput", 300.0, load="c1"),
        "openvino": declared("tpot_p50", 300.0),
    }
    (bound,) = judged(on_cpu(THROUGHPUT, baseline=peers))
    assert (bound.baseline, bound.declared) == ("transformers_cb", 200.0)


def test_for_a_latency_the_smallest_figure_is_the_hardest() -> None:
    peers = {"vllm": declared("tpot_p50", 0.05), "transformers_cb": declared("tpot_p50", 0.04)}
    goal = Goal(metric="tpot_p50", load="c8", min_ratio=2.0, against="competent")
    (bound,) = judged(on_cpu(goal, baseline=peers))
    assert (bound.baseline, bound.declared) == ("transformers_cb", 0.04)
    # 40 ms against a floor of 18.13 ms
    assert bound.max_ratio == pytest.approx(2.206, rel=1e-3)


def test_a_ratio_beyond_the_ceiling_over_a_declared_figure_is_refused() -> None:
    peers = {"vllm": declared("output_throughput", 300.0)}
    assert refused(on_cpu(THROUGHPUT, baseline=peers)).splitlines()[1] == (
        "  goals[0]: output_throughput x1.5 against competent is unreachable: best possible ratio 1.37 (ceiling 410.1 "
        "tok/s by bandwidth, vllm declared 300 tok/s, load c8)"
    )
    judged(on_cpu(THROUGHPUT, baseline=peers), is_measured=True)


def test_every_goal_that_is_unreachable_is_told() -> None:
    goals = [Goal(metric="tpot_p50", load="c8", max_ms=1), Goal(metric="peak_memory", max_gib=0.1)]
    assert refused(on_cpu(*goals)).count("is unreachable") == 2


def test_nothing_is_refused_where_nothing_is_known() -> None:
    unknown = replace(CPU, bandwidth_gb_s=0.0)
    judged(spec_of(SMOLLM2, unknown, goals=[Goal(metric="tpot_p50", load="c8", max_ms=0.001)]))
