"""Cores of the engine and of the load generator; bandwidth; roofline formulas."""

from __future__ import annotations

import pytest

from vibeserve.errors import SpecError
from vibeserve.hardware import (
    HardwareFacts,
    measure_bandwidth_gb_s,
    probe,
    resolve_cpus,
)
from vibeserve.hardware.cores import format_cpus, parse_cpus
from vibeserve.spec import Hardware


def facts(*cpus: int) -> HardwareFacts:
    return HardwareFacts(system="Linux", kernel="", cpu_model="", cpu_flags=(), cpus=cpus, memory_gib=8)


@pytest.mark.parametrize(
    ("cpus", "declared", "expected"),
    [
        ((0, 1, 2, 3), {}, ((0, 1, 2), (3,))),
        ((0, 1), {}, ((0,), (1,))),
        ((5,), {}, ((5,), (5,))),
        ((2, 3, 7), {}, ((2, 3), (7,))),
        ((0, 1, 2, 3), {"client_cpus": "0"}, ((1, 2, 3), (0,))),
        ((0, 1, 2, 3), {"engine_cpus": "0-1"}, ((0, 1), (3,))),
        ((0, 1, 2, 3), {"engine_cpus": "0,2", "client_cpus": "1,3"}, ((0, 2), (1, 3))),
    ],
)
def test_auto_leaves_the_last_to_the_load_generator(
    cpus: tuple[int, ...], declared: dict[str, str], expected: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    assert resolve_cpus(Hardware(name="cpu", **declared), facts(*cpus)) == expected  # type: ignore[arg-type]


def test_cpus_that_are_not_there_are_refused() -> None:
    with pytest.raises(SpecError, match=r"hardware.engine_cpus: this process may not use CPU 4") as caught:
        resolve_cpus(Hardware(name="cpu", engine_cpus="0-4"), facts(0, 1, 2, 3))
    assert "a subset of 0-3" in str(caught.value)


@pytest.mark.parametrize("text", ["", "a", "1-", "3-1", "0,,2", "-1"])
def test_lists_that_do_not_parse_are_refused(text: str) -> None:
    with pytest.raises(SpecError, match=r"hardware.client_cpus: .* is no list of CPUs"):
        parse_cpus(text, key="hardware.client_cpus")


def test_lists_are_written_as_the_kernel_writes_them() -> None:
    assert format_cpus((0, 1, 2, 5, 7, 8)) == "0-2,5,7-8"
    assert parse_cpus("0-2,5,7-8", key="k") == (0, 1, 2, 5, 7, 8)


def test_bandwidth_is_a_positive_number_and_affinity_stays() -> None:
    import os

    before = os.sched_getaffinity(0)
    assert measure_bandwidth_gb_s(probe().cpus[:1], size_mib=16, num_repeats=2) > 0.05
    assert os.sched_getaffinity(0) == before
