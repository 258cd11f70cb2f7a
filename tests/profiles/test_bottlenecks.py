"""The ranked list: shares of wall time, Amdahl ceilings, the roofline, and what becomes of it in a plan's shares."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from profile_samples import FOLDED, profile_sample

from vibeserve.core.documents import from_data, to_data
from vibeserve.plan.nouns import COMPUTE, MEASURED, DecodeFloor
from vibeserve.profiles import (
    Bottleneck,
    Evidence,
    Profile,
    build_profile,
    floors_of,
    mapped_libraries,
    observe,
    planning_shares,
    profile_lines,
    read_threads,
    report_rows,
    spans_profile,
)
from vibeserve.profiles.ranking import amdahl_ceiling
from vibeserve.profiles.samples import parse_folded
from vibeserve.profiles.threads import ThreadClock, cpu_shares

GIB = 1 << 30
SPANS = {
    "queue": 0.2, "prefill": 0.2, "decode.linear": 0.3, "decode.attention": 0.1, "decode.other": 0.1, "sampling": 0.05,
    "tokenize": 0.0, "http": 0.05,
}  # fmt: skip
ENGINE = "import queue\n" + "\n" * 117 + "            command = self._commands.get(block=True)\n"


def evidence(tmp_path: Path, *, folded: str = FOLDED, **changes: Any) -> Evidence:
    (tmp_path / "runtime").mkdir(exist_ok=True)
    (tmp_path / "runtime/engine.py").write_text(ENGINE)
    return Evidence(load="c4", workspace=tmp_path, stacks=[tuple(parse_folded(folded))], seconds=2.0, **changes)


def floor(**changes: Any) -> DecodeFloor:
    values: dict[str, Any] = {
        "load": "c4", "num_sequences": 4.0, "weights_gib": 1.0, "kv_gib": 0.5, "state_gib": 0.0, "all_reduce_s": 0.0,
        "step_s": 0.16, "bound_by": MEASURED,
    }  # fmt: skip
    return DecodeFloor(**(values | changes))


def test_the_largest_part_comes_first_with_its_ceiling_and_its_frames(tmp_path: Path) -> None:
    profile = build_profile(evidence(tmp_path), observed=observe([100], [98], metric="output_throughput"))
    assert profile.is_timed and profile.num_samples == 200 and profile.unit == "output token"
    rows = {row.name: row for row in profile.bottlenecks}
    assert [row.name for row in profile.bottlenecks] == ["sampler", "linear", "http", "model", "scheduler"]
    assert (rows["sampler"].share, rows["sampler"].thread, rows["sampler"].amdahl_ceiling) == (0.5, "engine", 2.0)
    assert [(frame.name, frame.share) for frame in rows["sampler"].frames] == [
        ("spin (runtime/sampler.py:72)", 0.45), ("draw (runtime/sampler.py:46)", 0.05)
    ]  # fmt: skip
    assert (rows["http"].share, rows["http"].thread) == (0.15, "MainThread"), "an idle event loop is no bottleneck"
    assert rows["sampler"].seconds_each == pytest.approx(0.5 / 98)
    assert "runtime/sampler.py:spin" in profile.structure.functions
    assert from_data(Profile, to_data(profile)) == profile


def test_a_thread_that_waits_for_work_is_not_counted(tmp_path: Path) -> None:
    profile = build_profile(evidence(tmp_path), observed=observe([1], [1], metric="request_throughput"))
    assert "engine" not in {row.name for row in profile.bottlenecks}, "_take_commands waits in its queue"
    assert profile.unit == "request"


def test_floors_of_a_decode_step_stand_beside_what_reads_the_bytes(tmp_path: Path) -> None:
    floors = floors_of([floor(load="c1"), floor()], load="c4", bandwidth_gb_s=10.0)
    assert floors.whole_s == pytest.approx(0.04)
    assert floors.by_seam == {"linear": pytest.approx(GIB / 1e10 / 4), "attention": pytest.approx(GIB / 2e10 / 4)}
    profile = build_profile(evidence(tmp_path), observed=observe([2], [2], metric="output_throughput"), floors=floors)
    linear = next(row for row in profile.bottlenecks if row.name == "linear")
    assert linear.seconds_each == pytest.approx(0.2 * 0.5) and linear.floor_s == pytest.approx(GIB / 1e10 / 4)
    assert linear.distance == pytest.approx(0.1 / (GIB / 1e10 / 4), abs=0.01)
    assert (profile.unit_s, profile.unit_floor_s) == (0.5, pytest.approx(0.04))
    sampler = next(row for row in profile.bottlenecks if row.name == "sampler")
    assert sampler.floor_s is sampler.distance is None


@pytest.mark.parametrize(
    ("decode", "bandwidth"),
    [([], 10.0), ([floor(step_s=None)], 10.0), ([floor(num_sequences=0.0)], 10.0), ([floor(load="c8")], 10.0)],
)
def test_nothing_is_a_floor_where_nothing_bounds_a_step(decode: list[DecodeFloor], bandwidth: float) -> None:
    floors = floors_of(decode, load="c4", bandwidth_gb_s=bandwidth)
    assert floors.whole_s is None and not floors.by_seam


def test_a_step_that_arithmetic_bounds_has_one_floor() -> None:
    floors = floors_of([floor(bound_by=COMPUTE)], load="c4", bandwidth_gb_s=10.0)
    assert floors.by_seam == {"linear": pytest.approx(0.04)}


def test_requests_have_no_floor_of_tokens(tmp_path: Path) -> None:
    floors = floors_of([floor()], load="c4", bandwidth_gb_s=10.0)
    profile = build_profile(evidence(tmp_path), observed=observe([2], [2], metric="request_throughput"), floors=floors)
    assert profile.unit_floor_s is None and all(row.floor_s is None for row in profile.bottlenecks)


def test_few_samples_give_no_shares(tmp_path: Path) -> None:
    few = 'process 7:"x";thread (4): engine;f (runtime/linear.py:1) 49\n'
    profile = build_profile(evidence(tmp_path, folded=few), observed=observe([1], [1], metric="output_throughput"))
    assert profile.bottlenecks == () and "49 samples are too few for shares: 50 are needed" in profile.notes
    assert profile.structure.functions == ("runtime/linear.py:f",)


def test_ceilings() -> None:
    assert [amdahl_ceiling(share) for share in (0.0, 0.5, 0.9)] == [1.0, 2.0, 10.0]
    assert amdahl_ceiling(1.0) is None, "of the whole there is none"


def test_threads_are_told_by_cpu_whatever_they_are_written_in(tmp_path: Path) -> None:
    def clock(tid: int, inner: int, name: str, cpu_s: float) -> ThreadClock:
        return ThreadClock(pid=7, tid=tid, inner_tid=inner, name=name, cpu_s=cpu_s)

    before = {70: clock(70, 2, "python", 1.0), 71: clock(71, 4, "python", 5.0)}
    after = {70: clock(70, 2, "python", 1.2), 71: clock(71, 4, "python", 8.8), 72: clock(72, 5, "omp", 3.0)}
    profile = build_profile(
        evidence(tmp_path, threads_before=before, threads_after=after, threads_s=4.0, libraries=("libfast.so",)),
        observed=None,
    )
    rows = [(row.name, row.cpu_share, row.is_python) for row in profile.structure.threads]
    assert rows == [("engine", 0.95, True), ("omp", 0.75, False), ("MainThread", 0.05, True)]
    assert profile.structure.num_processes == 1 and profile.structure.libraries == ("libfast.so",)
    assert cpu_shares(before, after, seconds=0.0) == {}


def test_threads_of_a_process_are_read_with_their_own_numbers() -> None:
    ready, done = threading.Event(), threading.Event()

    def work() -> None:
        ready.set()
        done.wait(10)

    thread = threading.Thread(target=work)
    thread.start()
    assert ready.wait(10)
    try:
        found = read_threads([os.getpid(), 1 << 22])
    finally:
        done.set()
        thread.join()
    assert {os.getpid(), thread.native_id} <= set(found), "a process that is gone has no threads"
    assert all(clock.pid == os.getpid() and clock.cpu_s >= 0 and clock.name for clock in found.values())


def test_libraries_are_told_without_the_systems_and_without_extensions(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    paths = [
        "/venv/torch/lib/libtorch_cpu.so", "/run/w/build/kernels.so", "/usr/lib/libc.so.6", "/venv/x/libgomp.so.1",
        "/venv/np/_core.cpython-311-x86_64-linux-gnu.so", "/run/w/a file.so", "/dev/zero", "[heap]",
    ]  # fmt: skip
    lines = [f"7f00-7f01 r-xp 00000000 08:01 {n}    {path}" for n, path in enumerate(paths)]
    (tmp_path / "7/maps").write_text("\n".join([*lines, "7f02-7f03 rw-p 00000000 00:00 0"]))
    names = mapped_libraries([7, 8], proc=tmp_path)
    assert names == ("a file.so", "kernels.so", "libgomp.so.1", "libtorch_cpu.so")


# -- what a plan reckons with


def test_without_a_timed_profile_the_spans_stand() -> None:
    assert planning_shares(None, SPANS) == SPANS
    assert planning_shares(replace(profile_sample(), is_timed=False), SPANS) == SPANS
    assert planning_shares(spans_profile({"http": 1.0}, load="c4"), SPANS) == SPANS
    assert planning_shares(profile_sample(bottlenecks=()), SPANS) == SPANS


def rows(**shares: float) -> tuple[Bottleneck, ...]:
    return tuple(Bottleneck(name=name, share=share, thread="engine") for name, share in shares.items())


def test_a_timed_profile_corrects_what_the_counters_say() -> None:
    """The counters hide the sampler; the profiler saw it half of the time."""
    profile = profile_sample(bottlenecks=rows(sampler=0.5, linear=0.3, attention=0.1, model=0.1))
    shares = planning_shares(profile, SPANS)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert shares["queue"] == 0.2, "waiting for a slot cannot be seen from outside"
    assert shares["http"] == 0.05, "it runs beside the engine's thread"
    assert shares["sampling"] == pytest.approx(0.75 * 0.5)
    forward = 0.75 * 0.5
    prefill = 0.2 / 0.7
    assert shares["prefill"] == pytest.approx(forward * prefill)
    assert shares["decode.linear"] == pytest.approx(0.75 * 0.3 * (1 - prefill))


def test_a_forward_pass_in_native_code_keeps_the_split_of_the_spans() -> None:
    """One call into C++ is one frame of Python: what is in it the profiler did not see."""
    profile = profile_sample(bottlenecks=rows(sampler=0.25, model=0.75))
    shares = planning_shares(profile, SPANS)
    assert shares["decode.linear"] / shares["decode.attention"] == pytest.approx(3.0)
    assert shares["sampling"] == pytest.approx(0.75 * 0.25)
    assert sum(shares.values()) == pytest.approx(1.0)


def test_without_any_spans_the_profile_stands_alone() -> None:
    shares = planning_shares(profile_sample(bottlenecks=rows(sampler=0.4, linear=0.4)), {})
    assert shares == {"queue": 0.0, "sampling": 0.5, "decode.linear": 0.5}


# -- as text


def test_a_prompt_is_told_the_list_in_a_few_lines() -> None:
    lines = profile_lines(profile_sample())
    assert lines == [
        "stacks, 398 samples at c4, 0.98 of the control's output_throughput: timed; 10.2 ms per output token, "
        "roofline 2 ms",
        "sampler 50% on engine, at most x2.00, x5.1 over its floor: Sampler.sample (runtime/sampler.py:0) 40%; "
        "Sampler.sample (runtime/sampler.py:0) 40%",
        "part_1 25% on engine, at most x2.00, x5.1 over its floor: Sampler.sample (runtime/sampler.py:1) 40%",
        "CPU by thread: engine 90%", "native: mkl_blas_sgemmSampler.sample 30%",
    ]  # fmt: skip
    assert len(profile_lines(profile_sample(is_long=True), max_rows=3)) == 6
    assert profile_lines(None) == []


def test_a_profile_that_is_not_timed_says_so_and_gives_no_shares() -> None:
    lines = profile_lines(build_profile(Evidence(load="c4", workspace=Path()), observed=None))
    assert lines == ["stacks, 0 samples at c4, without a control: not timed, so no shares"]


def test_the_servers_own_word_is_told_as_none_of_the_frameworks() -> None:
    profile = spans_profile({"http": 0.25, "queue": 0.75, "sampling": 0.0}, load="c4", notes=["py-spy: not installed"])
    assert profile.is_own_word and not profile.is_timed
    assert [row.name for row in profile.bottlenecks] == ["queue", "http"]
    assert profile_lines(profile) == ["no profile of the framework's: py-spy: not installed"]


def test_a_report_gets_rows_of_text() -> None:
    first = report_rows(profile_sample())[0]
    assert (first.name, first.share, first.thread, first.ceiling) == ("sampler", "50%", "engine", "x2.00")
    assert (first.seconds_each, first.floor, first.distance) == ("5.1 ms", "1 ms", "x5.1")
    assert report_rows(None) == []
