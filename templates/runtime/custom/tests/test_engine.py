"""Order, clients that leave, and overload."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from local_server import LocalServer
from runtime import api
from runtime.__main__ import build_service
from runtime.interfaces import Request
from runtime.parameters import Parameters

MAX_WAITING = 2


@pytest.fixture(scope="module")
def small_server(model_dir: Path) -> Iterator[LocalServer]:
    with LocalServer(build_service(model_dir, parameters=replace(Parameters(), max_waiting=MAX_WAITING))) as running:
        yield running


@contextmanager
def held(server: LocalServer) -> Iterator[tuple[threading.Event, list[str]]]:
    """The model waits until the event is set, at the end at the latest; the list has the ids of what it was asked."""
    engine = server.service.engine
    model, let_go = engine.model, threading.Event()
    asked: list[str] = []

    class Held:
        def run(self, request: Request) -> Any:
            asked.append(request.request_id)
            let_go.wait()
            return model.run(request)

    engine.model = Held()
    try:
        yield let_go, asked
    finally:
        let_go.set()
        engine.model = model


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def wait_idle(server: LocalServer) -> None:
    wait_until(lambda: server.service.metrics.num_unfinished == 0)


def send(server: LocalServer, request_id: str, *, leaves: bool = False) -> Any:
    return server.start("POST", api.PATH, body=server.example, headers={"x-request-id": request_id}, leaves=leaves)


def test_requests_run_one_at_a_time_in_their_order(small_server: LocalServer) -> None:
    with held(small_server) as (let_go, asked):
        pending = []
        for number in range(3):
            pending.append(send(small_server, str(number)))
            wait_until(lambda: small_server.service.metrics.num_unfinished == len(pending))
        wait_until(lambda: asked)
        assert (small_server.service.metrics.num_running, small_server.service.metrics.num_waiting) == (1, 2)
        let_go.set()
        assert [request.result(timeout=60).status for request in pending] == [200, 200, 200]
    assert asked == ["0", "1", "2"]
    wait_idle(small_server)


def test_a_client_that_leaves_while_it_waits_costs_the_model_nothing(small_server: LocalServer) -> None:
    with held(small_server) as (let_go, asked):
        first = send(small_server, "first")
        wait_until(lambda: asked)
        assert send(small_server, "left", leaves=True).result(timeout=60).status == 499
        wait_until(lambda: small_server.service.metrics.num_unfinished == 1)
        let_go.set()
        assert first.result(timeout=60).status == 200
    assert asked == ["first"]
    assert small_server.service.metrics.finished["abort"] >= 1
    wait_idle(small_server)


def test_a_client_that_leaves_while_the_model_runs_frees_its_place(small_server: LocalServer) -> None:
    with held(small_server) as (let_go, asked):
        assert send(small_server, "left", leaves=True).result(timeout=60).status == 499
        assert asked == ["left"]
        let_go.set()
        wait_idle(small_server)
    assert small_server.post(small_server.example).status == 200


def test_more_than_may_wait_is_refused_with_429(small_server: LocalServer) -> None:
    with held(small_server):
        taken = [send(small_server, str(number)) for number in range(1 + MAX_WAITING)]
        wait_until(lambda: small_server.service.metrics.num_unfinished == len(taken))
        refused = small_server.post(small_server.example)
    assert refused.status == 429
    assert refused.headers["retry-after"] == "1"
    assert refused.data["error"]["type"] == "rate_limit_error"
    assert [request.result(timeout=60).status for request in taken] == [200] * len(taken)
    wait_idle(small_server)
    assert small_server.post(small_server.example).status == 200
