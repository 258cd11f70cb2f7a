"""Fields of a request, and what comes back."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest
from local_server import LocalServer
from png_reader import read_png
from test_routes import refused_by_name

ASKED = {"prompt": "a house by the sea", "steps": 2, "guidance": 3, "seed": 7}


def image_of(server: LocalServer, **changes: Any) -> dict[str, Any]:
    answer = server.post(ASKED | changes)
    assert answer.status == 200, answer.body
    (image,) = answer.data["data"]
    return image


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
    "change", [{"steps": 0}, {"steps": 1.5}, {"steps": 10**6}, {"return_latents": 1}]
)  # fmt: skip
def test_bad_fields_are_refused_by_name(server: LocalServer, change: dict[str, Any]) -> None:
    refused_by_name(server, ASKED | change, name=next(iter(change)))


def test_a_client_that_leaves_frees_the_engine(server: LocalServer) -> None:
    server.start("POST", "/v1/images/generations", body=ASKED | {"steps": 150}, leaves=True).result(timeout=60)
    assert image_of(server)["seed"] == 7
    assert server.service.metrics.num_unfinished == 0
    assert server.service.metrics.finished.get("abort", 0) >= 1
