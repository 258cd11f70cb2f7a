"""Measuring a grid: it goes on where it stopped, keeps failures apart from what other work spoilt, mixes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.search.measure import Grid, Manner
from benchmarks.search.replay import TARGET, setting_of
from vibeserve.agents import Assembled
from vibeserve.errors import InfraError, ServerError, SpecError
from vibeserve.journal import Journal
from vibeserve.progress import QuietProgress
from vibeserve.roles.evaluator import Series

MANNER = Manner(
    target=TARGET, hardware="0" * 16, metric="output_throughput", load="c8", window_s=4.0, warmup_s=1.0, num_pairs=3,
    skills="0" * 16,
)  # fmt: skip
Compare = Callable[[Assembled, str], tuple[Series, Series]]


def series(name: str, *values: float) -> Series:
    return Series(name=name, windows=tuple({"output_throughput": value} for value in values), replies=())


def steady(assembled: Assembled, name: str) -> tuple[Series, Series]:
    return series(name, 2.0, 2.0, 2.0), series("control", 4.0, 4.0, 4.0)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Grid]:
    """One start of the command on the same work file, with scripted servers."""
    setting = setting_of(TARGET)

    def start(num: int, *, compare: Compare = steady, manner: Manner = MANNER) -> Grid:
        monkeypatch.setattr(Grid, "_beside_control", lambda self, assembled, *, name: compare(assembled, name))
        with Journal.open(tmp_path / "grid.jsonl") as journal:
            bench: Any = None
            grid = Grid(
                bench=bench, setting=setting, manner=manner, journal=journal, progress=QuietProgress(), folder=tmp_path
            )  # fmt: skip
            grid.run(limit_s=1e9, max_points=num)
        return grid

    return start


def test_it_goes_on_with_the_points_that_are_missing(run: Callable[..., Grid]) -> None:
    first = run(2)
    assert [(len(first.points), len(first.twins), len(first.todo()))] == [(2, 1, 142)]
    second = run(11)
    table = second.table(machine="made up")
    assert len({(each.components, str(each.parameters)) for each in table.points}) == 13
    assert (table.num_missing, len(table.twins)) == (131, 2), "another A/A series after twelve points"
    assert table.points[0].components == () and table.points[0].log_ratio == pytest.approx(-0.6931, abs=1e-4)
    assert table.twins[0].log_ratios == pytest.approx((-0.6931,) * 3, abs=1e-4)


def test_an_assembly_that_does_not_serve_is_a_point_with_its_reason(run: Callable[..., Grid]) -> None:
    def dying(assembled: Assembled, name: str) -> tuple[Series, Series]:
        if name.startswith("t"):
            return steady(assembled, name)
        raise ServerError(name, outcome="died", detail="exit status 1", log_tail="")

    grid = run(1, compare=dying)
    assert "died" in grid.points[0].error and grid.points[0].windows == ()


@pytest.mark.parametrize(
    "error",
    [
        InfraError("the machine does not keep quiet"),
        ServerError("control", outcome="died", detail="exit status 1", log_tail=""),
    ],
)
def test_what_other_work_spoils_is_left_for_later_and_three_in_a_row_end_it(
    run: Callable[..., Grid], error: Exception
) -> None:
    def noisy(assembled: Assembled, name: str) -> tuple[Series, Series]:
        raise error

    run(1)
    with pytest.raises(InfraError, match="3 points in a row were spoilt by other work; 1 are measured"):
        run(9, compare=noisy)
    assert len(run(1).points) == 2


def test_a_window_without_a_token_is_no_measurement(run: Callable[..., Grid]) -> None:
    def stalled(assembled: Assembled, name: str) -> tuple[Series, Series]:
        return series(name, 0.0, 2.0, 2.0), series("control", 4.0, 4.0, 4.0)

    grid = run(1, compare=stalled)
    assert grid.points == [] and "a window without a token" in str(grid.progress.events)  # type: ignore[attr-defined]


def test_what_was_measured_otherwise_is_not_gone_on_with(run: Callable[..., Grid]) -> None:
    run(1)
    with pytest.raises(SpecError, match=r"grid\.jsonl was measured otherwise") as caught:
        run(1, manner=replace(MANNER, window_s=2.0))
    assert "remove it, or name another one with --work" in str(caught.value)
