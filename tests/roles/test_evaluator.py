"""Side-by-side windows over scripted servers and loads: how things are left behind, and what is no number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from load_samples import PIECES, reply, requests, text_bundle
from loop_fakes import FakeServer, RecordingLease

from vibeserve.benchmark import RealClock
from vibeserve.core.nouns import METRICS, Reply
from vibeserve.core.spent import Spent
from vibeserve.errors import ServerError
from vibeserve.roles import evaluator as evaluator_module
from vibeserve.roles.evaluator import Entrant, Evaluator, Series, merged
from vibeserve.spec import Budget, Level, Spec
from vibeserve.workloads import Pool

QUICK = Spec(budget=Budget(level=Level.quick))
"""the level that takes a noisy machine as it is"""


@dataclass
class FakeSession:
    """A load whose active time jumps by a second at every look."""

    server: FakeServer
    is_started: bool = False
    now_s: float = 0.0
    num_finished: int = 9
    logprobs: int = 5
    ended_while_running: bool | None = None

    def start(self) -> None:
        self.is_started = True

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def check(self) -> None: ...

    def active_now_s(self) -> float:
        self.now_s += 1.0
        return self.now_s

    def finished(self) -> list[Any]:
        self.num_finished += 1
        return list(requests(num=self.num_finished, logprobs=self.logprobs))

    def stop(self) -> list[Reply]:
        self.ended_while_running = not self.server.is_paused
        return [reply([(float(second), PIECES[0])], scheduled_s=second - 0.5) for second in range(1, 200)]


@dataclass
class FakeBench:
    sessions: dict[str, FakeSession] = field(default_factory=dict)
    spans: list[dict[str, float]] = field(default_factory=lambda: [{"queue": 1.0}, {"queue": 2.0, "prefill": 3.0}])
    bundle: Any = field(default_factory=text_bundle)
    metrics: Any = field(default_factory=lambda: METRICS)
    plan: Any = field(default_factory=lambda: SimpleNamespace(engine_cpus=(), spec=QUICK))
    lease: RecordingLease = field(default_factory=RecordingLease)
    spent: Spent = field(default_factory=Spent)

    def session(self, server: FakeServer, **_: Any) -> FakeSession:
        assert self.lease.is_exclusive, "nothing is loaded without the device"
        assert not server.is_paused
        return self.sessions.setdefault(server.name, FakeSession(server))

    def request_spans(self, server: FakeServer) -> dict[str, float]:
        assert not server.is_paused, "a stopped server answers nothing"
        return self.spans.pop(0)


def compare(bench: FakeBench, *names: str, clock: Any = None, **changes: Any) -> dict[str, Series]:
    entrants = [Entrant(name=name, server=FakeServer(name)) for name in names]  # type: ignore[arg-type]
    arguments: dict[str, Any] = {
        "load": "c4", "pool": Pool.selection, "seed": 1, "num_pairs": 3, "window_s": 3.0, "warmup_s": 0.0,
    }  # fmt: skip
    evaluator = Evaluator(bench, clock or RealClock())  # type: ignore[arg-type]
    return evaluator.compare(entrants, **(arguments | changes))


def test_every_entrant_has_its_windows_and_is_left_paused_with_its_load_ended() -> None:
    bench = FakeBench()
    series = compare(bench, "a", "b", profiled="a")
    assert {name: len(row.windows) for name, row in series.items()} == {"a": 3, "b": 3}
    assert series["a"].windows[0]["output_throughput"] == pytest.approx(1.0)
    assert series["a"].windows[0]["peak_memory"] == 1.0
    assert series["a"].spans == {"prefill": 0.75, "queue": 0.25}
    assert series["b"].spans == {}
    for session in bench.sessions.values():
        assert session.ended_while_running, "a stopped server cannot see that its clients went away"
        assert session.server.is_paused


def test_a_server_that_died_is_named_and_the_other_loads_are_ended() -> None:
    bench = FakeBench()
    bench.sessions["a"] = FakeSession(FakeServer("a", status=-9))
    dead, alive = FakeServer("a", status=-9), FakeServer("b")
    entrants: Any = [Entrant(name="a", server=dead), Entrant(name="b", server=alive)]  # type: ignore[arg-type]
    with pytest.raises(ServerError, match="server 'a' died: exit status -9 under load"):
        Evaluator(bench, RealClock()).compare(  # type: ignore[arg-type]
            entrants, load="c4", pool=Pool.selection, seed=0, num_pairs=3, window_s=1.0, warmup_s=0.0
        )
    assert all(session.ended_while_running is not None for session in bench.sessions.values() if session.is_started)


def test_a_server_that_served_and_is_not_what_is_counted_is_refused() -> None:
    class Uncounted(FakeServer):
        def check_counted(self, *, cpu_s: float) -> None:
            raise ServerError(self.name, outcome="uncounted", detail="no CPU time", log_tail="")

    entrants: Any = [Entrant(name="a", server=Uncounted("a")), Entrant(name="b", server=FakeServer("b"))]  # type: ignore[arg-type]
    with pytest.raises(ServerError, match="server 'a' uncounted: no CPU time"):
        Evaluator(FakeBench(), RealClock()).compare(  # type: ignore[arg-type]
            entrants, load="c4", pool=Pool.selection, seed=0, num_pairs=1, window_s=1.0, warmup_s=0.0
        )


def test_nothing_of_a_comparison_runs_while_it_waits_for_the_device() -> None:
    servers = [FakeServer("a"), FakeServer("b")]
    paused: list[bool] = []

    class WatchingLease(RecordingLease):
        def exclusive(self, what: str) -> AbstractContextManager[None]:
            paused.extend(server.is_paused for server in servers)
            return super().exclusive(what)

    bench = FakeBench(lease=WatchingLease())
    entrants: Any = [Entrant(name=server.name, server=server) for server in servers]  # type: ignore[arg-type]
    Evaluator(bench, RealClock()).compare(  # type: ignore[arg-type]
        entrants, load="c4", pool=Pool.selection, seed=0, num_pairs=1, window_s=1.0, warmup_s=0.0
    )
    assert paused == [True, True]
    assert bench.lease.granted == [("exclusive", "windows of a, b")]
    assert bench.lease.held == []


class BrokenClock:
    def declare(self, name: str, *, factor: float) -> None: ...

    def read(self, name: str, windows: Sequence[Mapping[str, float]], *, offset: int = 0) -> list[dict[str, float]]:
        return [dict(window) | {"ttft_p50": math.inf, "tpot_p50": math.nan} for window in windows]


def test_a_figure_that_is_no_number_is_an_absent_one() -> None:
    window = compare(FakeBench(), "a", clock=BrokenClock())["a"].windows[0]
    assert not {"ttft_p50", "tpot_p50"} & set(window)
    assert "output_throughput" in window


def test_a_slow_server_goes_on_until_its_replies_can_be_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator_module, "EVIDENCE_POLL_S", 0.0)
    bench, server = FakeBench(), FakeServer("a")
    bench.sessions["a"] = FakeSession(server, num_finished=0)
    evaluator = Evaluator(bench, RealClock())  # type: ignore[arg-type]
    evaluator.compare(
        [Entrant(name="a", server=server, is_judged=True)], load="c4", pool=Pool.selection, seed=0, num_pairs=1,  # type: ignore[arg-type]
        window_s=1.0, warmup_s=0.0,
    )  # fmt: skip
    assert bench.sessions["a"].num_finished == evaluator_module.MIN_FINISHED


def test_replies_without_what_the_check_asks_for_are_no_evidence_however_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator_module, "EVIDENCE_POLL_S", 0.0)
    monkeypatch.setattr(evaluator_module, "EVIDENCE_TIMEOUT_S", 5.0)
    bench, server = FakeBench(), FakeServer("a")
    bench.sessions["a"] = FakeSession(server, logprobs=0)
    before = bench.sessions["a"].num_finished
    Evaluator(bench, RealClock()).compare(  # type: ignore[arg-type]
        [Entrant(name="a", server=server, is_judged=True)], load="c4", pool=Pool.selection, seed=0, num_pairs=1,  # type: ignore[arg-type]
        window_s=1.0, warmup_s=0.0,
    )  # fmt: skip
    assert bench.sessions["a"].num_finished > before + 1, "it went on until the time was up"


def test_only_ours_are_asked_for_what_the_check_needs() -> None:
    asked: dict[str, bool] = {}

    class AskedBench(FakeBench):
        def session(self, server: FakeServer, *, is_plain: bool = False, **options: Any) -> FakeSession:
            asked[server.name] = not is_plain
            return super().session(server, **options)

    ours, rival = FakeServer("ours"), FakeServer("rival")
    entrants: Any = [Entrant(name="ours", server=ours, is_ours=True), Entrant(name="rival", server=rival)]  # type: ignore[arg-type]
    Evaluator(AskedBench(), RealClock()).compare(  # type: ignore[arg-type]
        entrants, load="c4", pool=Pool.selection, seed=0, num_pairs=1, window_s=1.0, warmup_s=0.0
    )
    assert asked == {"ours": True, "rival": False}


class Scripted(Evaluator):
    """Halves over scripted windows."""

    def __init__(self, values: dict[str, list[dict[str, float]]]) -> None:
        super().__init__(FakeBench(), RealClock())  # type: ignore[arg-type]
        self.values = values
        self.rounds: list[tuple[float, tuple[str, ...]]] = []

    def compare(self, entrants: Sequence[Entrant], *, window_s: float, **_: Any) -> dict[str, Series]:  # type: ignore[override]
        self.rounds.append((window_s, tuple(entrant.name for entrant in entrants)))
        return {e.name: Series(name=e.name, windows=tuple(self.values[e.name]), replies=()) for e in entrants}


def halve(values: dict[str, list[dict[str, float]]], *, metric: str) -> tuple[str, list[tuple[float, tuple[str, ...]]]]:
    evaluator = Scripted(values)
    entrants = [Entrant(name=name, server=FakeServer(name)) for name in values]  # type: ignore[arg-type]
    best = evaluator.halve(entrants, load="c4", pool=Pool.selection, seed=0, metric=metric, window_s=4.0, warmup_s=1.0)
    return best, evaluator.rounds


def test_the_better_half_goes_on_with_windows_twice_as_long() -> None:
    values = {name: [{"output_throughput": speed}] for name, speed in (("a", 1.0), ("b", 5.0), ("c", 3.0), ("d", 4.0))}
    best, rounds = halve(values, metric="output_throughput")
    assert best == "b"
    assert rounds == [(4.0, ("a", "b", "c", "d")), (8.0, ("b", "d"))]


def test_the_direction_of_the_metric_counts_and_ties_go_by_name() -> None:
    assert halve({"a": [{"ttft_p50": 2.0}], "b": [{"ttft_p50": 1.0}]}, metric="ttft_p50")[0] == "b"
    assert halve({"b": [{"ttft_p50": 1.0}], "a": [{"ttft_p50": 1.0}]}, metric="ttft_p50")[0] == "a"


@pytest.mark.parametrize("metric", ["ttft_p50", "output_throughput"])
def test_a_missing_value_is_never_the_best(metric: str) -> None:
    values = {"absent": [{}], "partly": [{metric: 1e-6}, {}], "there": [{metric: 1e9}]}
    assert halve(values, metric=metric)[0] == "there"


def test_a_single_variant_needs_no_window() -> None:
    assert halve({"a": []}, metric="ttft_p50") == ("a", [])


def test_series_of_several_starts_become_one() -> None:
    parts = [Series(name="a", windows=({"x": float(n)},), replies=(), facts=({"psi": 0.0},)) for n in range(2)]
    whole = merged(parts)
    assert whole.windows == ({"x": 0.0}, {"x": 1.0})
    assert len(whole.facts) == 2
    assert whole.medians() == {"x": 0.5}
    assert Series(name="a", windows=({"x": 1.0, "y": 1.0}, {"x": 3.0}), replies=()).medians() == {"x": 2.0}
    assert Series(name="a", windows=(), replies=()).medians() == {}
