"""Routes, fields and refusals of the API."""

from __future__ import annotations

import base64
import logging
from typing import Any

import numpy as np
import pytest
from local_server import LocalServer
from runtime.http import create_app
from test_sampler import read_png

ASKED = {"prompt": "a house by the sea", "steps": 2, "guidance": 3, "seed": 7}


def image_of(server: LocalServer, **changes: Any) -> dict[str, Any]:
    answer = server.post(ASKED | changes)
    assert answer.status == 200, answer.body
    (image,) = answer.data["data"]
    return image


def test_operators_see_its_state(server: LocalServer) -> None:
    assert server.get("/live").data == {"status": "live"}
    assert server.get("/health").data == {"status": "ok"}
    metrics = server.get("/metrics").body.decode()
    assert "# TYPE vllm:num_requests_running gauge" in metrics and 'span="decode.linear"' in metrics


def test_the_model_is_listed(server: LocalServer) -> None:
    (card,) = server.get("/v1/models").data["data"]
    assert server.get(f"/v1/models/{card['id']}").data["id"] == card["id"] == server.service.model_name
    assert server.get("/v1/models/other").status == 404


def test_an_image_is_drawn_and_the_same_again(server: LocalServer) -> None:
    first, again = image_of(server), image_of(server, model=server.service.model_name, response_format="b64_json")
    pixels = read_png(base64.b64decode(first["b64_json"]))
    assert first == again and first["seed"] == 7 and "latents" not in first
    assert pixels.std() > 5


@pytest.mark.parametrize("change", [{"seed": 8}, {"steps": 3}, {"guidance": 1}, {"prompt": "a house by the lake"}])
def test_every_field_counts(server: LocalServer, change: dict[str, Any]) -> None:
    assert image_of(server, **change)["b64_json"] != image_of(server)["b64_json"]


def test_latents_come_where_they_are_asked_for(server: LocalServer) -> None:
    image = image_of(server, return_latents=True)
    latents = np.frombuffer(base64.b64decode(image["latents"]), dtype="<f4")
    height, width, _ = read_png(base64.b64decode(image["b64_json"])).shape
    assert np.isfinite(latents).all() and len(latents) % (height // 8 * width // 8) == 0
    assert image["b64_json"] == image_of(server)["b64_json"]


def test_a_smaller_image_is_drawn_as_such(server: LocalServer) -> None:
    unit = server.service.api._config.patch_px
    image = image_of(server, size=f"{2 * unit}x{unit}")
    assert read_png(base64.b64decode(image["b64_json"])).shape == (unit, 2 * unit, 3)


def test_without_a_seed_one_is_drawn_and_told(server: LocalServer) -> None:
    image = image_of(server, seed=None)
    assert image["b64_json"] == image_of(server, seed=image["seed"])["b64_json"]


@pytest.mark.parametrize(
    "change",
    [
        {"prompt": None}, {"prompt": ""}, {"prompt": 5}, {"prompt": "word " * 100_000}, {"n": 2}, {"n": True},
        {"size": "9x9"}, {"size": "8000x8000"}, {"size": 64}, {"steps": 0}, {"steps": 1.5}, {"steps": 10**6},
        {"guidance": 0.9}, {"guidance": "3"}, {"guidance": 1e9}, {"seed": -1}, {"seed": 1 << 32}, {"seed": "7"},
        {"response_format": "url"}, {"output_format": "webp"}, {"return_latents": 1},
    ],
)  # fmt: skip
def test_bad_fields_are_refused_by_name(server: LocalServer, change: dict[str, Any]) -> None:
    answer = server.post(ASKED | change)
    assert answer.status == 400
    error = answer.data["error"]
    assert error["param"] == next(iter(change)) and error["type"] == "invalid_request_error"
    assert error["message"].startswith(f"{error['param']}: ")


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


def test_a_client_that_leaves_frees_the_engine(server: LocalServer) -> None:
    server.start("POST", "/v1/images/generations", body=ASKED | {"steps": 150}, leaves=True).result(timeout=60)
    assert image_of(server)["seed"] == 7
    assert server.service.metrics.num_unfinished == 0
    assert server.service.metrics.finished.get("abort", 0) >= 1


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
