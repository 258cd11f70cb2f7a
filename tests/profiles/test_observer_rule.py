"""A profile counts as timed within a tenth of its control, in both directions, and only then."""

from __future__ import annotations

import math

import pytest
from profile_samples import profile_sample

from vibeserve.profiles import is_within, observe, order_of_slices, under_rule


@pytest.mark.parametrize("num_each", [1, 2, 3, 5])
def test_slices_take_turns_and_are_as_many_of_either_kind(num_each: int) -> None:
    order = order_of_slices(num_each)
    assert order.count(True) == order.count(False) == num_each
    assert order[0] is False, "a control comes first"


def test_two_of_each_are_mirrored_so_that_drift_falls_on_both() -> None:
    assert order_of_slices(2) == [False, True, True, False]


@pytest.mark.parametrize(
    ("control", "profiled", "expected"),
    [
        ([100, 100], [100, 100], True), ([100, 100], [91, 89], True), ([100, 100], [110, 110], True),
        ([100, 100], [89, 89], False), ([100, 100], [111, 111], False), ([100, 300], [200, 200], True),
        ([0, 0], [10, 10], False), ([0, 0], [0, 0], False), ([100], [0], False), ([], [], False), ([100], [], False),
        ([math.nan], [100], False), ([math.inf], [100], False), ([100], [math.nan], False),
    ],
)  # fmt: skip
def test_the_rule(control: list[float], profiled: list[float], expected: bool) -> None:
    observed = observe(control, profiled, metric="output_throughput")
    assert is_within(observed) is expected
    assert math.isfinite(observed.control) and math.isfinite(observed.profiled)


def test_what_was_not_compared_is_not_within() -> None:
    assert not is_within(None)


def test_within_the_rule_everything_is_kept() -> None:
    found = under_rule(profile_sample(), observe([100], [96], metric="output_throughput"))
    assert found.is_timed and found.bottlenecks and found.notes == ()
    assert found.observed is not None and found.observed.ratio == pytest.approx(0.96)


def test_beyond_it_only_the_structure_is_kept_and_the_profile_says_why() -> None:
    found = under_rule(profile_sample(), observe([100], [60], metric="output_throughput"))
    assert not found.is_timed and found.bottlenecks == ()
    assert found.structure == profile_sample().structure
    assert found.notes == (
        "not timed: output_throughput was 0.60 of its control's under the profiler, the rule allows 0.90 to 1.10; "
        "what is kept are facts of structure",
    )


def test_without_a_control_only_the_structure_is_kept() -> None:
    found = under_rule(profile_sample(), None)
    assert (found.is_timed, found.bottlenecks) == (False, ())
    assert found.notes == ("not timed: there is no control to compare with; what is kept are facts of structure",)
