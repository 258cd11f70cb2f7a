"""Active seconds stand still while paused; arrivals are those of a Poisson process."""

from __future__ import annotations

import itertools
import statistics
import time

import pytest

from vibeserve.client.arrivals import poisson_arrivals
from vibeserve.client.clock import ActiveClock, ClockPage


class FakeMonotonic:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_pauses_are_not_active_time() -> None:
    monotonic = FakeMonotonic()
    clock = ActiveClock(ClockPage(), monotonic=monotonic)
    clock.start()
    monotonic.now_s += 2
    clock.pause()
    monotonic.now_s += 5
    assert clock.is_paused
    assert clock.now_s() == pytest.approx(2)
    clock.resume()
    monotonic.now_s += 1
    assert clock.now_s() == pytest.approx(3)
    clock.pause()
    monotonic.now_s += 10
    clock.pause()
    monotonic.now_s += 10
    clock.resume()
    clock.resume()
    assert clock.now_s() == pytest.approx(3)


def test_the_generator_reads_the_same_time_through_the_page() -> None:
    page = ClockPage()
    clock = ActiveClock(page)
    clock.start()
    reader = ClockPage(page.fd)
    clock.pause()
    time.sleep(0.05)
    clock.resume()
    before = clock.now_s()
    seen = reader.now_s()
    assert before <= seen <= clock.now_s()


def test_poisson_arrivals_have_the_declared_rate_and_spread() -> None:
    times = list(itertools.islice(poisson_arrivals(4.0, seed=3), 20_000))
    gaps = [after - before for before, after in itertools.pairwise([0.0, *times])]
    assert statistics.fmean(gaps) == pytest.approx(0.25, rel=0.03)
    # of an exponential distribution: deviation = mean, and a share of 1/e is longer than the mean
    assert statistics.pstdev(gaps) == pytest.approx(0.25, rel=0.03)
    assert sum(gap > 0.25 for gap in gaps) / len(gaps) == pytest.approx(0.3679, abs=0.015)


def test_poisson_arrivals_are_the_seed_s() -> None:
    first, again, other = (list(itertools.islice(poisson_arrivals(1.0, seed=seed), 5)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    with pytest.raises(ValueError, match="rate_per_s must be above 0"):
        next(poisson_arrivals(0.0, seed=1))
