"""Pairs that the machine spoilt are measured again, for what the machine did and never for what they showed."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from test_interleaving import World, contenders, measure

from vibeserve.benchmark import Devices, Discarding, DisturbedPair, Slice
from vibeserve.benchmark import interleaving as interleaving_module
from vibeserve.benchmark.disturbance import disturbances
from vibeserve.benchmark.neighbours import Reading, neighbour_facts, read_counters
from vibeserve.errors import InfraError

QUIET = {"psi_share": 0.02, "steal_share": 0.0, "foreign_share": 0.05, "num_throttled": 0.0, "sentinel_huge_gb_s": 20.0}


def pair(**facts: float) -> list[Slice]:
    return [
        Slice(contender=name, pair=0, position=0, start_s=0, end_s=1, facts=QUIET | (facts if name == "b" else {}))
        for name in ("a", "b")
    ]


def test_a_quiet_pair_stands() -> None:
    assert disturbances(pair(), bandwidths=[20.0, 21.0, 19.0]) == ()
    assert disturbances([Slice(contender="a", pair=0, position=0, start_s=0, end_s=1)], bandwidths=[]) == ()


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"steal_share": 0.2}, "b: the hypervisor took 20% of the engine's cores"),
        ({"foreign_share": 0.4}, "b: other processes took 40% of the engine's cores"),
        ({"num_throttled": 1.0}, "b: the clock was throttled"),
    ],
)
def test_what_spoils_a_window_of_one_spoils_the_pair(facts: dict[str, float], reason: str) -> None:
    assert disturbances(pair(**facts), bandwidths=[20.0]) == (reason,)


def test_what_spoils_it_for_all() -> None:
    before = [Slice(contender="a", pair=0, position=0, start_s=0, end_s=1, facts=QUIET | {"psi_share": 0.8})]
    assert disturbances(before, bandwidths=[]) == ("other work waited for a core in 80% of the time before the pair",)
    slow = [Slice(contender="a", pair=0, position=0, start_s=0, end_s=1, facts=QUIET | {"sentinel_huge_gb_s": 8.0})]
    assert disturbances(slow, bandwidths=[20.0, 21.0]) == ("memory bandwidth 8.0 GB/s, the median was 20.5",)
    assert disturbances(slow, bandwidths=[12.0, 13.0]) == (), "that much is drift, which interleaving cancels"


def test_shares_are_of_the_cores_time_beyond_the_measured_tree() -> None:
    before = Reading(busy_s=100.0, steal_s=1.0, tree_s=50.0, num_throttled=3)
    after = Reading(busy_s=118.0, steal_s=2.0, tree_s=66.0, num_throttled=3)
    facts = neighbour_facts(before, after, cpus=2, seconds=10.0)
    assert facts == {"steal_share": 0.05, "foreign_share": pytest.approx(0.1), "num_throttled": 0.0}
    assert neighbour_facts(None, after, cpus=2, seconds=10.0) == {}, "what was not read is not claimed to be quiet"


def test_counters_see_a_neighbour_on_the_core() -> None:
    core = min(os.sched_getaffinity(0))
    before, started_s = read_counters([core], tree_s=0.0), time.monotonic()
    burn = f"import os, time\nos.sched_setaffinity(0, [{core}])\nwhile time.process_time() < 0.3: 0"
    subprocess.run([sys.executable, "-c", burn], check=True)
    after, seconds = read_counters([core], tree_s=0.0), time.monotonic() - started_s
    facts = neighbour_facts(before, after, cpus=1, seconds=seconds)
    # the core was busy for the neighbour's 0.3 s at least, whatever else ran on it
    assert facts["foreign_share"] * seconds >= 0.25
    assert read_counters([], tree_s=0.0) is None
    assert read_counters([10**6], tree_s=0.0) is None, "a core that is not there has no counters"


def scripted(monkeypatch: pytest.MonkeyPatch, *bad: bool) -> None:
    """Every measured pair in turn is disturbed, or not; after the last one all are quiet."""
    script = iter(bad)
    monkeypatch.setattr(
        interleaving_module, "disturbances", lambda slices, bandwidths: ("a: noise",) if next(script, False) else ()
    )


def test_a_disturbed_pair_is_told_and_measured_again_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, False, True, True, False)
    world, told = World(), []
    rows = measure(
        world, contenders(world, "a", "b"), num_pairs=3,
        discarding=Discarding(max_pairs=3, is_strict=True, tell=told.append),
    )  # fmt: skip
    assert [[part.pair for part in row] for row in rows] == [[0, 1, 2]] * 2
    assert [(one.pair, one.reasons) for one in told] == [(1, ("a: noise",))] * 2
    assert all(isinstance(one, DisturbedPair) and set(one.facts) == {"a", "b"} for one in told)
    # the second pair is the mirror image of the first, also after two that were dropped
    assert [row[0].position for row in rows] == [row[1].position for row in reversed(rows)]
    assert [round(part.start_s) for part in rows[0]] == [1, 19, 25], "the dropped windows' time has passed"


def test_a_machine_without_quiet_is_infrastructure(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, *[True] * 9)
    world = World()
    with pytest.raises(
        InfraError, match="does not keep quiet: 3 pairs were disturbed, the last one by: a: noise\nnext:"
    ):
        measure(
            world, contenders(world, "a", "b"), num_pairs=2,
            discarding=Discarding(max_pairs=2, is_strict=True, tell=lambda one: None),
        )  # fmt: skip
    assert world.events[-1].endswith("server.pause")


def test_a_level_that_nobody_quotes_takes_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, *[True] * 9)
    world, told = World(), []
    rows = measure(
        world, contenders(world, "a", "b"), num_pairs=2,
        discarding=Discarding(max_pairs=2, is_strict=False, tell=told.append),
    )  # fmt: skip
    assert [len(row) for row in rows] == [2, 2] and len(told) == 2


def test_without_a_rule_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted(monkeypatch, True, True)
    world = World()
    assert [len(row) for row in measure(world, contenders(world, "a", "b"), num_pairs=2, devices=Devices())] == [2, 2]
