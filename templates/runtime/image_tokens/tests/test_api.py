"""Fields of a request, and what comes back."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from local_server import LocalServer
from png_reader import read_png
from test_routes import ASKED, refused_by_name


def image_of(server: LocalServer, **changes: Any) -> dict[str, Any]:
    answer = server.post(ASKED | changes)
    assert answer.status == 200, answer.body
    (image,) = answer.data["data"]
    return image


def test_an_image_is_drawn_and_the_same_again(server: LocalServer) -> None:
    first, again = image_of(server), image_of(server, model=server.service.model_name, size="auto")
    pixels = read_png(base64.b64decode(first["b64_json"]))
    assert first == again and first["seed"] == 7 and "token_ids" not in first
    assert pixels.shape == (server.service.api._config.side_px, server.service.api._config.side_px, 3)
    assert pixels.std() > 5


@pytest.mark.parametrize("change", [{"seed": 8}, {"temperature": 3}, {"guidance": 1}, {"prompt": "a lake"}])
def test_every_field_counts(server: LocalServer, change: dict[str, Any]) -> None:
    assert image_of(server, **change)["b64_json"] != image_of(server)["b64_json"]


def test_codes_come_where_they_are_asked_for(server: LocalServer) -> None:
    image, config = image_of(server, return_token_ids=True), server.service.api._config
    assert len(image["token_ids"]) == config.num_tokens
    assert all(type(code) is int and 0 <= code < config.num_codes for code in image["token_ids"])
    assert image["b64_json"] == image_of(server)["b64_json"]


def test_without_temperature_the_seed_does_not_count(server: LocalServer) -> None:
    first, other = (image_of(server, temperature=0, seed=seed)["b64_json"] for seed in (1, 2))
    assert first == other


def test_without_a_seed_one_is_drawn_and_told(server: LocalServer) -> None:
    image = image_of(server, seed=None)
    assert image["b64_json"] == image_of(server, seed=image["seed"])["b64_json"]


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 10}, {"temperature": -0.1}, {"temperature": 11}, {"temperature": "1"}, {"temperature": True},
        {"return_token_ids": 1}, {"size": "16x16"},
    ],
)  # fmt: skip
def test_bad_fields_are_refused_by_name(server: LocalServer, change: dict[str, Any]) -> None:
    refused_by_name(server, ASKED | change, name=next(iter(change)))


def test_a_client_that_leaves_frees_the_engine(server: LocalServer) -> None:
    """Several wait, so that one of them is still there when its client goes."""
    waiting = [server.start("POST", "/v1/images/generations", body=ASKED, leaves=True) for _ in range(8)]
    for each in waiting:
        each.result(timeout=60)
    assert image_of(server)["seed"] == 7
    assert server.service.metrics.num_unfinished == 0
    assert server.service.metrics.finished.get("abort", 0) >= 1
