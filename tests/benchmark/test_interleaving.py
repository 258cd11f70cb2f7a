"""The order of stopping and continuing, on a clock of the test's own; then once for real against two stubs."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from load_samples import PIECES, requests, text_bundle

from vibeserve.benchmark import Contender, interleave, window_metrics
from vibeserve.benchmark.interleaving import Slice, orders
from vibeserve.client import LoadSession
from vibeserve.client.stub import Script, StubServer
from vibeserve.core.nouns import LoadPoint
from vibeserve.errors import InfraError, ServerError


@dataclass
class World:
    """Time that passes only in `sleep`, and everything that happened."""

    now_s: float = 0.0
    events: list[str] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass
class FakeServer:
    name: str
    world: World
    dies_at_s: float = float("inf")
    outcome: str = "died"

    def pause(self) -> None:
        self.world.events.append(f"{self.name}.server.pause")

    def resume(self) -> None:
        self.world.events.append(f"{self.name}.server.resume")

    def poll(self) -> int | None:
        return -11 if self.world.now_s >= self.dies_at_s else None

    def cpu_s(self) -> float:
        return 0.0

    def log_tail(self) -> str:
        return "Segmentation fault"


@dataclass
class FakeSession:
    """Active time is the world's time while it runs."""

    name: str
    world: World
    is_started: bool = False
    active_s: float = 0.0
    running_since_s: float | None = None
    problem: str = ""

    def start(self) -> None:
        self.is_started = True
        self.running_since_s = self.world.now_s
        self.world.events.append(f"{self.name}.session.start")

    def pause(self) -> None:
        if self.running_since_s is not None:
            self.active_s += self.world.now_s - self.running_since_s
        self.running_since_s = None
        self.world.events.append(f"{self.name}.session.pause")

    def resume(self) -> None:
        self.running_since_s = self.world.now_s
        self.world.events.append(f"{self.name}.session.resume")

    def active_now_s(self) -> float:
        running_s = 0.0 if self.running_since_s is None else self.world.now_s - self.running_since_s
        return self.active_s + running_s

    def check(self) -> None:
        if self.problem:
            raise InfraError(self.problem)


def contenders(world: World, *names: str, dies_at_s: float = float("inf")) -> list[Contender]:
    return [
        Contender(
            name=name,
            server=FakeServer(name, world, dies_at_s if name == names[-1] else float("inf")),
            session=FakeSession(name, world),
        )
        for name in names
    ]


def measure(world: World, rivals: list[Contender], **options: object) -> list[list[Slice]]:
    defaults: dict[str, object] = {"num_pairs": 4, "window_s": 5.0, "warmup_s": 1.0, "seed": 1, "sleep": world.sleep}
    return interleave(rivals, **(defaults | options))  # type: ignore[arg-type]


def test_windows_are_slices_of_each_contender_s_own_active_time() -> None:
    world = World()
    a, b = measure(world, contenders(world, "a", "b"))
    assert [slice_.contender for slice_ in a] == ["a"] * 4
    for row in (a, b):
        assert [slice_.pair for slice_ in row] == [0, 1, 2, 3]
        assert [(round(s.start_s, 6), round(s.end_s, 6)) for s in row] == [(1, 6), (7, 12), (13, 18), (19, 24)]
    assert {(s.position, t.position) for s, t in zip(a, b, strict=True)} == {(0, 1), (1, 0)}


def test_the_generator_stops_before_its_server_and_starts_after_it() -> None:
    world = World()
    measure(world, contenders(world, "a", "b"), num_pairs=2)
    assert world.events[:2] == ["a.server.pause", "b.server.pause"]
    first, second = ("a", "b") if world.events[2].startswith("a") else ("b", "a")
    assert world.events[2:] == [
        event
        for name, verb in ((first, "start"), (second, "start"), (second, "resume"), (first, "resume"))
        for event in (
            f"{name}.server.resume",
            f"{name}.session.{verb}",
            f"{name}.session.pause",
            f"{name}.server.pause",
        )
    ]


def test_the_first_window_may_warm_up_longer() -> None:
    world = World()
    a, _ = measure(world, contenders(world, "a", "b"), num_pairs=2, first_warmup_s=4.0)
    assert [(round(s.start_s, 6), round(s.end_s, 6)) for s in a] == [(4, 9), (10, 15)]


def test_orders_are_random_by_seed_mirrored_and_fair() -> None:
    order = orders(3, num_pairs=6, seed=3)
    assert all(sorted(row) == [0, 1, 2] for row in order)
    assert all(order[k + 1] == order[k][::-1] for k in (0, 2, 4))
    assert order == orders(3, num_pairs=6, seed=3)
    assert len({tuple(row) for seed in range(20) for row in orders(3, num_pairs=1, seed=seed)}) == 6
    # a linear drift costs both alike
    positions = [[row.index(k) for row in orders(2, num_pairs=8, seed=9)] for k in range(2)]
    assert sum(positions[0]) == sum(positions[1])


def test_between_runs_with_everything_paused() -> None:
    world = World()
    seen: list[int] = []

    def between(pair: int) -> None:
        seen.append(pair)
        assert world.events[-1].endswith("server.pause")

    measure(world, contenders(world, "a", "b", "c"), num_pairs=3, between=between)
    assert seen == [0, 1, 2]


def test_a_dead_server_is_named_with_its_log_and_everything_is_left_paused() -> None:
    world = World()
    with pytest.raises(ServerError, match=r"server 'b' died: exit status -11 under load\n  \| Segmentation fault"):
        measure(world, contenders(world, "a", "b", dies_at_s=8.0))
    assert world.events[-1].endswith("server.pause")


def test_a_dead_generator_is_an_infra_error() -> None:
    world = World()
    rivals = contenders(world, "a", "b")
    rivals[0].session.problem = "load generator 'a' ended with -9"  # type: ignore[attr-defined]
    with pytest.raises(InfraError, match="load generator 'a' ended"):
        measure(world, rivals)


def test_contenders_need_names_of_their_own() -> None:
    world = World()
    with pytest.raises(ValueError, match="distinct names"):
        measure(world, contenders(world, "a", "a"))


def test_every_slice_carries_the_machine_s_facts() -> None:
    world = World()
    a, b = measure(world, contenders(world, "a", "b"), num_pairs=1)
    assert a[0].facts["sentinel_huge_gb_s"] > 0
    assert a[0].facts["sentinel_4k_gb_s"] > 0
    assert a[0].facts["sentinel_huge_gb_s"] == b[0].facts["sentinel_huge_gb_s"], "read once a pair"
    assert a[0].facts["psi_share"] >= 0


def test_two_stubs_side_by_side_show_their_scripted_ratio() -> None:
    with StubServer(Script(pieces=PIECES, tpot_s=0.004)) as fast, StubServer(Script(pieces=PIECES, tpot_s=0.1)) as slow:
        rivals = [
            Contender(
                name=name,
                server=server,
                session=LoadSession(
                    bundle=text_bundle(),
                    base_url=server.base_url,
                    dialect="vllm",
                    model="stub",
                    load=LoadPoint(name="c2", concurrency=2),
                    requests=requests(max_tokens=8),
                    name=name,
                ),
            )
            for name, server in (("fast", fast), ("slow", slow))
        ]
        rows = interleave(rivals, num_pairs=2, window_s=0.5, warmup_s=0.1, seed=1)
        replies = [rival.session.stop() for rival in rivals]  # type: ignore[attr-defined]
    metrics = [
        window_metrics(own, start_s=s.start_s, end_s=s.end_s, bundle=text_bundle())
        for own, row in zip(replies, rows, strict=True)
        for s in row
    ]
    rates = [window["output_throughput"] for window in metrics]
    # scripted 25 to 1: only the order is asserted
    assert min(rates[:2]) > max(rates[2:]) > 0
