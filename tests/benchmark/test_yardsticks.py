"""The checks of the yardstick itself: headroom, the fake clock, drift, the sentinel."""

from __future__ import annotations

import math

import pytest

from vibeserve.benchmark import FakeClock, Headroom, RealClock, decide, headroom, noise_floor, paired_log_ratios
from vibeserve.benchmark.clock import make_clock
from vibeserve.benchmark.drift import decays, half_ratio, memory_slope
from vibeserve.benchmark.sentinel import Sentinel, machine_facts
from vibeserve.core.nouns import METRICS
from vibeserve.errors import InfraError, RefusedError, SpecError
from vibeserve.spec import ClockKind

THROUGHPUT = METRICS["output_throughput"]


def test_headroom_reaches_a_modest_scripted_rate() -> None:
    seen = headroom(events_per_s=50.0, concurrency=4, duration_s=1.0)
    assert seen.scripted_per_s == 100.0
    assert seen.reached_per_s > 0
    assert seen.num_replies >= 4
    assert seen.sent_lag_p99_s >= 0
    assert seen.generator_cpu_share > 0


def test_a_generator_that_falls_behind_is_an_infra_error() -> None:
    good = Headroom(
        scripted_per_s=1000, reached_per_s=995, sent_lag_p99_s=0.001, num_replies=40, generator_cpu_share=0.1
    )
    good.check()
    slow = Headroom(scripted_per_s=1000, reached_per_s=600, sent_lag_p99_s=0.2, num_replies=40, generator_cpu_share=1.0)
    with pytest.raises(InfraError, match=r"only 600 of 1000 events/s arrived; requests left 200.0 ms late \(p99\)"):
        slow.check()


def test_an_impossible_rate_is_seen_as_such() -> None:
    seen = headroom(events_per_s=2e6, concurrency=8, duration_s=0.5)
    with pytest.raises(InfraError, match="the load generator has no headroom"):
        seen.check()


def fake(names: dict[str, float]) -> FakeClock:
    clock = FakeClock()
    for name, factor in names.items():
        clock.declare(name, factor=factor)
    return clock


MEASURED = [{"output_throughput": 3.0, "num_failed": 2.0}] * 8


def test_the_fake_clock_replaces_speed_and_keeps_counts() -> None:
    clock = fake({"a": 1.0, "b": 1.5})
    first = clock.read("a", MEASURED)
    assert first == fake({"a": 1.0}).read("a", MEASURED), "deterministic"
    assert first[0] != first[1], "with a jitter, as windows have"
    assert all(window["output_throughput"] == pytest.approx(100, rel=0.0021) for window in first)
    assert all(window["ttft_p50"] == pytest.approx(0.01, rel=0.0021) for window in first)
    assert all(window["num_failed"] == 2.0 for window in first)
    assert "peak_memory" not in first[0]
    assert clock.read("a", MEASURED[:1], offset=1)[0] == first[1]


def test_decisions_under_the_fake_clock_follow_the_declared_factors() -> None:
    clock = fake({"incumbent": 1.0, "again": 1.0, "better": 1.3, "worse": 0.9})
    incumbent = clock.read("incumbent", MEASURED)
    floor = noise_floor(paired_log_ratios(clock.read("again", MEASURED), incumbent, metric=THROUGHPUT), seed=1)
    for name, accepted in (("better", True), ("worse", False), ("again", False)):
        decision = decide(
            clock.read(name, MEASURED), incumbent, metric=THROUGHPUT, noise_floor=floor, min_effect=0.02, seed=1
        )
        assert decision.accepted is accepted, decision.reason


def test_the_fake_clock_knows_only_what_was_declared() -> None:
    with pytest.raises(SpecError, match=r"no expected factor is declared for 'b'\n  declared: a"):
        fake({"a": 1.0}).read("b", MEASURED)
    with pytest.raises(SpecError, match="must be above 0, not nan"):
        fake({"a": math.nan})


def test_the_real_clock_changes_nothing() -> None:
    clock = make_clock(ClockKind.real)
    assert isinstance(clock, RealClock)
    clock.declare("a", factor=9.0)
    assert clock.read("a", MEASURED) == MEASURED
    assert isinstance(make_clock(ClockKind.fake), FakeClock)


def test_a_steady_run_has_equal_halves_and_a_collapse_shows() -> None:
    steady = [k * 0.1 for k in range(1000)]
    assert half_ratio(steady, start_s=0.0, end_s=100.0, seed=1).ratio == pytest.approx(1.0, rel=0.03)
    assert not decays(half_ratio(steady, start_s=0.0, end_s=100.0, seed=1))
    fading = [50 - 0.1 * k for k in range(500)] + [50 + 0.2 * k for k in range(250)]
    halves = half_ratio(fading, start_s=0.0, end_s=100.0, seed=1)
    assert halves.ratio == pytest.approx(0.5, rel=0.05)
    assert decays(halves)


def test_a_run_that_stood_still_has_no_ratio() -> None:
    with pytest.raises(RefusedError, match=r"no token arrived in 10 of 20 stretches of 5.0 s"):
        half_ratio([k * 0.1 for k in range(500)], start_s=0.0, end_s=100.0, seed=1)


def test_memory_slope_sees_a_leak_and_not_a_spike() -> None:
    leak = memory_slope([(60.0 * k, 2.0 + 0.01 * k) for k in range(11)])
    assert leak.gib_per_h == pytest.approx(0.6)
    assert leak.growth_share == pytest.approx(0.1 / 2.05)
    spike = memory_slope([(60.0 * k, 9.0 if k == 5 else 2.0) for k in range(11)])
    assert spike.gib_per_h == 0
    with pytest.raises(ValueError, match="three samples at distinct times"):
        memory_slope([(0.0, 1.0), (1.0, 1.0)])
    with pytest.raises(ValueError, match="three samples at distinct times"):
        memory_slope([(1.0, 1.0)] * 3)


def test_the_sentinel_reads_both_page_sizes_and_gives_the_affinity_back() -> None:
    import os

    before = os.sched_getaffinity(0)
    facts = Sentinel(cpus=sorted(before)[:1]).read()
    assert os.sched_getaffinity(0) == before
    assert set(facts) == {"sentinel_huge_gb_s", "sentinel_4k_gb_s", "psi_share"}
    assert facts["sentinel_huge_gb_s"] > 0
    assert all(value >= 0 for value in machine_facts().values())
