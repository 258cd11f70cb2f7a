"""Slots, aborts and overload."""

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
from runtime.__main__ import build_service
from runtime.parameters import Parameters

MAX_WAITING = 2
STEP_S = 0.01
LONG = {"prompt": "Once upon a time", "temperature": 0, "ignore_eos": True, "stream": True}


@pytest.fixture(scope="module")
def small_server(model_dir: Path) -> Iterator[LocalServer]:
    with LocalServer(build_service(model_dir, parameters=replace(Parameters(), max_waiting=MAX_WAITING))) as running:
        yield running


def longest(server: LocalServer) -> int:
    return server.service.limits.max_context_tokens - 64


def wait_idle(server: LocalServer) -> None:
    metrics = server.service.metrics
    deadline = time.monotonic() + 30
    while server.service.engine.num_unfinished or metrics.num_running or metrics.num_waiting:
        assert time.monotonic() < deadline, "the engine did not become idle"
        time.sleep(0.01)


@contextmanager
def held(server: LocalServer) -> Iterator[threading.Event]:
    """The engine's steps wait until the event is set, however fast the model is; it is set at the end at the latest."""
    model = server.service.engine.parts.model
    forward, let_go = model.forward, threading.Event()

    def waiting(*arguments: Any) -> Any:
        let_go.wait()
        return forward(*arguments)

    model.forward = waiting  # type: ignore[method-assign]
    try:
        yield let_go
    finally:
        let_go.set()
        model.forward = forward  # type: ignore[method-assign]


@contextmanager
def slowed(server: LocalServer) -> Iterator[None]:
    """Every step takes a while, so that a client can leave in the middle of its reply."""
    model = server.service.engine.parts.model
    forward = model.forward

    def slow(*arguments: Any) -> Any:
        time.sleep(STEP_S)
        return forward(*arguments)

    model.forward = slow  # type: ignore[method-assign]
    try:
        yield
    finally:
        model.forward = forward  # type: ignore[method-assign]


def test_a_client_that_leaves_its_stream_frees_its_slot(small_server: LocalServer) -> None:
    body = {**LONG, "max_tokens": longest(small_server)}
    with slowed(small_server):
        left = small_server.start("POST", "/v1/completions", body=body, leave_after_chunks=3)
        left.result(timeout=60)
        wait_idle(small_server)
    metrics = small_server.service.metrics
    assert metrics.kv_cache_usage == 0
    assert metrics.finished["abort"] == 1
    assert small_server.complete("Once").status == 200


def test_a_client_that_leaves_before_its_whole_reply_frees_its_slot(small_server: LocalServer) -> None:
    aborted = small_server.service.metrics.finished.get("abort", 0)
    body = {**LONG, "stream": False, "max_tokens": longest(small_server)}
    with slowed(small_server):
        small_server.start("POST", "/v1/completions", body=body, leave_after_chunks=0).result(timeout=60)
        wait_idle(small_server)
    assert small_server.service.metrics.finished["abort"] == aborted + 1
    assert small_server.service.metrics.kv_cache_usage == 0


def test_more_than_may_wait_is_refused_with_429(small_server: LocalServer) -> None:
    room = small_server.service.parameters.max_num_seqs + MAX_WAITING
    body = {**LONG, "max_tokens": longest(small_server)}
    with held(small_server):
        taken = [
            small_server.start("POST", "/v1/completions", body=body, leave_after_chunks=1) for _ in range(room)
        ]
        while small_server.service.engine.num_unfinished < room:
            time.sleep(0.001)
        refused = small_server.complete("Once")
    assert refused.status == 429
    assert refused.headers["retry-after"] == "1"
    assert refused.data["error"]["type"] == "rate_limit_error"
    for request in taken:
        request.result(timeout=120)
    wait_idle(small_server)
    assert small_server.complete("Once").status == 200


def test_a_failing_engine_fails_its_requests_and_its_health(model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    service = build_service(model_dir, parameters=Parameters())
    failures: list[str] = []
    with LocalServer(service) as server:
        service.engine.on_failure = lambda: failures.append("failed")
        monkeypatch.setattr(service.engine.parts.model, "forward", lambda *_: 1 / 0)
        assert server.complete("Once").status == 500
        assert server.get("/health").status == 503
        assert server.complete("Once").status == 503
    assert failures == ["failed"]


def test_waiting_requests_are_served_when_a_slot_is_free(small_server: LocalServer) -> None:
    room = small_server.service.parameters.max_num_seqs + MAX_WAITING
    pending = [
        small_server.start("POST", "/v1/completions", body={**LONG, "max_tokens": 4}) for _ in range(room)
    ]
    texts = ["".join(choice["text"] for choice in request.result(timeout=120).choice_events) for request in pending]
    assert all(texts)
