"""The record of the machine: what is read, and that what it does not tell is never called quiet."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from plan_samples import FACTS

from vibeserve.benchmark.environment import MachineReading, environment, read_machine
from vibeserve.core.documents import from_data, to_data
from vibeserve.core.environment import Environment, comparable
from vibeserve.hardware import probe

PLAN: Any = SimpleNamespace(digests={"lock": "ab" * 32}, engine_cpus=(0, 1), client_cpus=(3,), threads=2)
BEFORE = MachineReading(
    at_s=100.0, time_s=1_700_000_000.0, load_average=0.5, pressure_avg10=0.02, pressure_s=7.0, steal_ticks=10,
    all_ticks=1000,
)  # fmt: skip
AFTER = replace(BEFORE, at_s=110.0, pressure_s=9.5, steal_ticks=60, all_ticks=2000)


def seen(before: MachineReading = BEFORE, after: MachineReading = AFTER, **changes: Any) -> Environment:
    facts = replace(FACTS, cpu_flags=("avx2", "hypervisor", "vmx"), cpu_governor="performance", **changes)
    return environment(PLAN, facts=facts, before=before, after=after, sandbox_tier="B")


def test_shares_are_of_the_time_between_the_readings() -> None:
    record = seen()
    assert (record.steal_share, record.cpu_pressure, record.wall_s) == (0.05, 0.25, 10.0)
    assert (record.load_average_before, record.cpu_pressure_before) == (0.5, 0.02)
    assert record.started_at == "2023-11-14T22:13:20+00:00"


def test_it_names_machine_cores_and_software() -> None:
    record = seen()
    assert record.cpu_flags == ("avx2",) and record.is_virtual and record.cpu_governor == "performance"
    assert (record.engine_cpus, record.client_cpus, record.threads) == ((0, 1), (3,), 2)
    assert record.lock_digest == "ab" * 32 and record.sandbox_tier == "B"
    assert {"vibeserve", "torch", "numpy"} <= set(record.packages)
    assert from_data(Environment, to_data(record)) == record


@pytest.mark.parametrize("lost", ["pressure_s", "steal_ticks", "all_ticks"])
def test_a_counter_that_is_not_there_is_unknown_and_not_zero(lost: str) -> None:
    record = seen(before=replace(BEFORE, **{lost: None}))
    assert (record.cpu_pressure if lost == "pressure_s" else record.steal_share) is None


def test_nothing_passed_is_unknown_too() -> None:
    record = seen(after=BEFORE)
    assert (record.steal_share, record.cpu_pressure) == (None, None)


def test_this_machine_can_be_read() -> None:
    before = read_machine()
    record = environment(PLAN, facts=probe(), before=before, after=read_machine(), sandbox_tier="A")
    assert record.cpu_model and record.kernel.startswith(("Linux", "Darwin"))
    assert record.steal_share is None or 0 <= record.steal_share <= 1
    assert record.stopped_by in ("cgroup v2", "cgroup v1", "SIGSTOP")
    assert record.memory_counted_by in ("processes", "processes and control group")


def test_memory_is_comparable_where_it_was_counted_alike() -> None:
    by_processes, by_both = replace(seen(), memory_counted_by="processes"), replace(seen(), memory_counted_by="both")
    assert comparable("peak_memory", by_both, by_both) and comparable("peak_memory", by_processes, None)
    assert not comparable("peak_memory", by_both, by_processes)
    assert not comparable("peak_memory", None, by_both)
    assert comparable("output_throughput", None, by_both)
