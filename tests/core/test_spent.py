"""Seconds by activity: an inner one is not counted twice."""

from __future__ import annotations

import pytest

from vibeserve.core.spent import Spent, added, shares


def test_an_inner_activity_stops_the_outer_one() -> None:
    now = [0.0]
    spent = Spent(monotonic=lambda: now[0])
    now[0] = 5.0
    with spent.on("windows"):
        now[0] += 3.0
        with spent.on("start"):
            now[0] += 2.0
        now[0] += 1.0
    now[0] += 9.0
    assert spent.take() == {"windows": 4.0, "start": 2.0}
    assert spent.take() == {}


def test_what_fails_has_taken_its_time() -> None:
    now = [0.0]
    spent = Spent(monotonic=lambda: now[0])
    with pytest.raises(ValueError), spent.on("probe"):
        now[0] += 2.0
        raise ValueError
    assert spent.take() == {"probe": 2.0}


def test_sums_and_shares() -> None:
    total = added([{"windows": 60.0, "probe": 5.0}, {"windows": 20.0, "rescore": 15.0}])
    assert total == {"windows": 80.0, "probe": 5.0, "rescore": 15.0}
    assert shares(total, wall_s=160.0) == {"measuring_share": 0.5, "judging_share": 0.125}
    assert shares(total, wall_s=0.0) == {}
