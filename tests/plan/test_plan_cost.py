"""Device-hours, price and break-even, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from plan_samples import CPU, H100, LLAMA_8B, SMOLLM2, THROUGHPUT, declared, floors_of, spec_of

from vibeserve.plan import break_even_requests, usd_per_request
from vibeserve.plan.ceilings import compute_ceilings
from vibeserve.plan.cost import requests_per_s, run_cost
from vibeserve.plan.goals import ratio_bounds
from vibeserve.plan.nouns import Cost
from vibeserve.spec import Budget, Goal, Load, Spec


def cost_of(spec: Spec, *, minutes: float = 120.0) -> Cost:
    ceilings = compute_ceilings(spec, floors_of(spec))
    return run_cost(spec, minutes=minutes, ceilings=ceilings, ratios=ratio_bounds(spec, ceilings))


def test_a_request_costs_its_share_of_an_hour() -> None:
    # 3.60 USD an hour are 0.001 USD a second; four requests in it
    assert usd_per_request(usd_per_hour=3.6, requests_per_s=4.0) == pytest.approx(0.00025)


def test_break_even_is_the_price_of_the_run_over_the_saving() -> None:
    # 24 USD, and a request costs 0.00010 instead of 0.00015 USD
    number = break_even_requests(24.0, usd_per_request_before=0.00015, usd_per_request_after=0.00010)
    assert number == pytest.approx(480_000)
    assert break_even_requests(24.0, usd_per_request_before=1e-4, usd_per_request_after=1e-4) is None
    assert break_even_requests(24.0, usd_per_request_before=1e-4, usd_per_request_after=2e-4) is None


def test_requests_of_a_headline() -> None:
    spec = spec_of(LLAMA_8B, H100)
    # replies of 96 tokens in the mean
    assert requests_per_s(spec, metric="output_throughput", load="c8", value=960.0) == 10.0
    assert requests_per_s(spec, metric="request_throughput", load="c8", value=7.0) == 7.0
    # eight in flight, two seconds each
    assert requests_per_s(spec, metric="e2el_p50", load="c8", value=2.0) == 4.0
    assert requests_per_s(spec, metric="ttft_p50", load="c8", value=2.0) is None
    spec.workload.loads["o32"] = Load(concurrency=8, output_tokens=32)
    assert requests_per_s(spec, metric="output_throughput", load="o32", value=960.0) == 30.0
    spec.workload.loads["r1"] = Load(rate_per_s=1.0)
    assert requests_per_s(spec, metric="e2el_p50", load="r1", value=2.0) is None


def test_without_a_price_there_are_device_hours() -> None:
    cost = cost_of(spec_of(SMOLLM2, CPU))
    assert (cost.device_hours, cost.usd, cost.break_even_requests) == (2.0, None, None)
    assert cost.break_even == "not priced: hardware.usd_per_hour is 0"


def test_every_device_is_paid_and_the_agents_apart() -> None:
    cost = cost_of(spec_of(LLAMA_8B, replace(H100, count=4), budget=Budget(usd=50.0)))
    assert (cost.device_hours, cost.usd, cost.agents_usd) == (8.0, 24.0, 50.0)


def test_break_even_from_a_declared_figure() -> None:
    cost = cost_of(spec_of(LLAMA_8B, H100, baseline={"vllm": declared("output_throughput", 480.0)}))
    # before: 480 tok/s are 5 requests a second, 3 USD / 3600 / 5 = 1/6000 USD; after: 1.5 times as many, 1/9000 USD.
    # 6 USD over 1/18,000
    assert cost.break_even_requests == pytest.approx(108_000)
    assert cost.break_even == (
        "assumed: output_throughput at c8 1.5 times as good as the declared 480 of vllm, devices always busy"
    )


def test_the_agents_budget_has_to_be_earned_back_too() -> None:
    peers = {"vllm": declared("output_throughput", 480.0)}
    cost = cost_of(spec_of(LLAMA_8B, H100, baseline=peers, budget=Budget(usd=6.0)))
    assert cost.break_even_requests == pytest.approx(216_000)


def test_break_even_from_half_the_ceiling_says_so() -> None:
    spec = spec_of(LLAMA_8B, H100)
    cost = cost_of(spec)
    # ceiling: 8 / ((15,009,849,344 + 8 x 16,777,216) / 3350e9) = 1769.67 tok/s; half of it 884.8, 9.217 requests a
    # second; before 6.145. 3/3600/6.145 - 3/3600/9.217 = 4.5206e-5 USD; 6 USD over that
    assert cost.break_even_requests == pytest.approx(132_725, rel=1e-3)
    assert cost.break_even == (
        "assumed: output_throughput at c8 reaches 50% of its ceiling, 884.8 tok/s, 1.5 times as good as competent, "
        "devices always busy"
    )


def test_break_even_of_an_absolute_goal_needs_a_declared_figure() -> None:
    goal = Goal(metric="output_throughput", load="c8", min_per_s=960)
    unknown = cost_of(spec_of(LLAMA_8B, H100, goals=[goal]))
    assert unknown.break_even_requests is None
    assert unknown.break_even == (
        "unknown: output_throughput at c8 has no ratio with a ceiling or a declared figure behind it"
    )
    known = cost_of(spec_of(LLAMA_8B, H100, goals=[goal], baseline={"vllm": declared("output_throughput", 480.0)}))
    # 5 and 10 requests a second: 1/6000 and 1/12,000 USD
    assert known.break_even_requests == pytest.approx(72_000)
    assert "as the goal says, 960 tok/s, instead of the declared 480 of vllm" in known.break_even


def test_a_latency_that_prices_nothing_and_a_goal_that_saves_nothing() -> None:
    ttft = cost_of(spec_of(LLAMA_8B, H100, goals=[Goal(metric="ttft_p50", load="c8", min_ratio=2, against="vllm")]))
    assert ttft.break_even == "unknown: ttft_p50 says nothing about the price of a request"
    even = replace(THROUGHPUT, min_ratio=1.0)
    assert cost_of(spec_of(LLAMA_8B, H100, goals=[even])).break_even.startswith("never: a request gets no cheaper")
