"""Routes, ids, key and refusals that do not depend on how an image is drawn."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from local_server import LocalServer
from runtime.http import create_app

ASKED = {"prompt": "a house by the sea", "guidance": 3, "seed": 7}


def test_operators_see_its_state(server: LocalServer) -> None:
    assert server.get("/live").data == {"status": "live"}
    assert server.get("/health").data == {"status": "ok"}
    metrics = server.get("/metrics").body.decode()
    assert "# TYPE vllm:num_requests_running gauge" in metrics and 'span="decode.linear"' in metrics


def test_the_model_is_listed(server: LocalServer) -> None:
    (card,) = server.get("/v1/models").data["data"]
    assert server.get(f"/v1/models/{card['id']}").data["id"] == card["id"] == server.service.model_name
    assert server.get("/v1/models/other").status == 404


def test_bad_bodies_and_other_models_are_refused(server: LocalServer) -> None:
    assert server.post(b"{").status == 400
    assert server.post([ASKED]).status == 400
    assert server.post(ASKED | {"model": "other"}).status == 404
    assert server.post(b"[" * 2_000_000).status == 413
    assert server.get("/no-such-route").status == 404


def test_request_ids_come_back_and_the_log_holds_no_prompt(
    server: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        answer = server.post(ASKED, headers={"x-request-id": "mine"})
    assert answer.headers["x-request-id"] == "mine"
    assert any(record.name == "runtime.access" for record in caplog.records)
    assert "sea" not in caplog.text and not any("sea" in str(vars(record)) for record in caplog.records)


def test_too_many_waiting_are_told_to_come_again(server: LocalServer) -> None:
    server.service.metrics.num_unfinished += 10**6
    try:
        answer = server.post(ASKED)
    finally:
        server.service.metrics.num_unfinished -= 10**6
    assert answer.status == 429 and answer.headers["retry-after"] == "1"


def test_a_key_is_asked_for(server: LocalServer) -> None:
    kept, server.app = server.app, create_app(_with_key(server))
    try:
        assert server.get("/health").status == 200
        assert server.post(ASKED).status == 401
        assert server.post(ASKED, headers={"authorization": "Bearer secret"}).status == 200
    finally:
        server.app = kept


def _with_key(server: LocalServer) -> Any:
    from dataclasses import replace

    return replace(server.service, api_key="secret")


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": None}, {"prompt": ""}, {"prompt": 5}, {"prompt": "word " * 100_000}, {"n": 2}, {"n": True},
        {"size": "9x9"}, {"size": "8000x8000"}, {"size": 64}, {"guidance": 0.9}, {"guidance": "3"}, {"guidance": 1e9},
        {"seed": -1}, {"seed": 1 << 32}, {"seed": "7"}, {"response_format": "url"}, {"output_format": "webp"},
    ],
)  # fmt: skip
def test_bad_fields_are_refused_by_name(server: LocalServer, change: dict[str, Any]) -> None:
    refused_by_name(server, ASKED | change, name=next(iter(change)))


def refused_by_name(server: LocalServer, body: dict[str, Any], *, name: str) -> None:
    answer = server.post(body)
    assert answer.status == 400
    error = answer.data["error"]
    assert (error["param"], error["type"]) == (name, "invalid_request_error")
    assert error["message"].startswith(f"{name}: ")
