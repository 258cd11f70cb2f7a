"""Routes, shapes and refusals of the API."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from local_server import LocalServer, Response
from runtime import api, spans
from runtime.__main__ import build_service
from runtime.interfaces import Request
from runtime.parameters import Parameters


def error_of(response: Response) -> tuple[int, str, Any]:
    error = response.data["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return response.status, error["message"], error["param"]


def test_health_live_and_models(server: LocalServer) -> None:
    assert server.get("/health").status == 200
    assert server.get("/live").status == 200
    (card,) = server.get("/v1/models").data["data"]
    assert server.get(f"/v1/models/{card['id']}").data == card
    assert server.get("/v1/models/another").status == 404


def test_the_example_is_answered_by_the_model(server: LocalServer) -> None:
    reply = server.post(server.example)
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/json"
    answer = server.service.engine.model.run(Request(request_id="test", payload=api.parse(server.example)))
    assert reply.data == json.loads(json.dumps(api.render(answer)))


def test_the_same_request_has_the_same_reply(server: LocalServer) -> None:
    assert server.post(server.example).body == server.post(server.example).body


def test_bad_bodies_a_wrong_model_and_wrong_routes(server: LocalServer) -> None:
    assert error_of(server.post(b"{"))[0] == 400
    assert error_of(server.post([server.example]))[:2] == (400, "the request body must be a JSON object")
    status, message, param = error_of(server.post({**server.example, "model": "another"}))
    assert (status, param) == (404, "model")
    assert "'another'" in message
    assert error_of(server.get("/v1/nothing"))[0] == 404
    assert error_of(server.get(api.PATH))[0] == 405


def test_the_models_name_may_be_left_out(server: LocalServer) -> None:
    body = server.example
    del body["model"]
    assert server.post(body).status == 200


def test_what_parse_refuses_is_a_400(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(body: dict[str, Any]) -> Any:
        raise ValueError("'input' is missing")

    monkeypatch.setattr(api, "parse", refuse)
    assert error_of(server.post(server.example))[:2] == (400, "'input' is missing")


def test_a_failing_model_fails_one_request_and_its_log_quotes_nothing(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Failing:
        def run(self, request: Request) -> Any:
            raise RuntimeError("cannot read 'a very secret input'")

    with monkeypatch.context() as patched, caplog.at_level(logging.INFO):
        patched.setattr(server.service.engine, "model", Failing())
        assert error_of(server.post(server.example))[:2] == (500, "the model failed on this request")
    (record,) = [record for record in caplog.records if record.getMessage() == "the model failed"]
    assert record.fields["error"] == "RuntimeError"  # type: ignore[attr-defined]
    assert not any("secret" in str(vars(record)) for record in caplog.records)
    assert server.post(server.example).status == 200
    assert server.get("/health").status == 200


def test_an_answer_that_is_no_json_is_a_500(server: LocalServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in (float("nan"), object()):
        with monkeypatch.context() as patched:
            patched.setattr(api, "render", lambda _, answer=answer: {"answer": answer})
            assert error_of(server.post(server.example))[0] == 500


def test_request_ids_are_taken_and_made(server: LocalServer) -> None:
    assert server.post(server.example, headers={"x-request-id": "abc"}).headers["x-request-id"] == "abc"
    assert server.get("/v1/models").headers["x-request-id"]


def test_api_key(model_dir: Path) -> None:
    with LocalServer(build_service(model_dir, parameters=Parameters(), api_key="secret")) as guarded:
        assert error_of(guarded.post(guarded.example))[0] == 401
        assert error_of(guarded.get("/v1/models", headers={"authorization": "Bearer wrong"}))[0] == 401
        assert guarded.post(guarded.example, headers={"authorization": "Bearer secret"}).status == 200
        assert guarded.get("/health").status == 200


def test_metrics_count_requests_and_name_every_span(server: LocalServer) -> None:
    def counter(name: str) -> float:
        text = server.get("/metrics").body.decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.startswith(name))

    answered = 'vllm:request_success_total{model_name="' + server.service.model_name + '",finished_reason="stop"}'
    before = counter(answered)
    server.post(server.example)
    assert counter(answered) == before + 1
    assert counter("vllm:num_requests_running{") == 0
    text = server.get("/metrics").body.decode()
    for span in spans.NAMES:
        assert f'vibeserve_span_seconds_total{{span="{span}"}}' in text
    assert "vllm:e2e_request_latency_seconds_bucket" in text
