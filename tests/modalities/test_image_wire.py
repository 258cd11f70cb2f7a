"""Bodies of requests, and answers as they come."""

from __future__ import annotations

import base64
import io
import json

import numpy as np
import pytest
from image_samples import output, picture, request_of

from vibeserve.contract import SendError
from vibeserve.modalities.image.wire import body_of, latents_of, pixels_of, read_answer
from vibeserve.modalities.image.workload import with_payload


def test_a_body_says_everything_that_the_image_depends_on() -> None:
    asked = request_of()
    body = body_of(asked, model="m")
    assert body == {
        "model": "m", "prompt": "a house by the sea", "size": "16x16", "n": 1, "response_format": "b64_json",
        "steps": 5, "guidance": 3.0, "seed": 7, "return_latents": True,
    }  # fmt: skip
    del body["return_latents"]
    assert body_of(with_payload(asked, is_plain=True), model="m") == body


def test_an_answer_is_one_image() -> None:
    found = output(3)
    answer = {"created": 1, "data": [{"b64_json": found["png"], "latents": found["latents"], "seed": 7}]}
    read = read_answer(json.dumps(answer).encode())
    np.testing.assert_array_equal(pixels_of(read["png"]), picture(3))
    assert latents_of(read["latents"]).shape == (16,)
    assert read_answer(json.dumps({"data": [{"b64_json": "x"}]}).encode()) == {"png": "x", "latents": ""}


@pytest.mark.parametrize(
    "answer",
    [b"", b"{}", b"[]", b'{"data": []}', b'{"data": [{}]}', b'{"data": [{"b64_json": 5}]}', b'{"data": [1]}',
     b'{"data": [{"b64_json": "x"}, {"b64_json": "y"}]}', b'{"data": [{"b64_json": "x", "latents": [1.0]}]}'],
)  # fmt: skip
def test_answers_of_another_shape_fail_the_request(answer: bytes) -> None:
    with pytest.raises(SendError, match="malformed answer"):
        read_answer(answer)


def test_only_a_png_of_rgb_is_an_image() -> None:
    from PIL import Image

    for kind, pixels, told in (
        ("PNG", picture(1)[:, :, 0], "mode L"), ("JPEG", picture(1), "no PNG"),
        ("PNG", np.zeros((5000, 5000, 3), dtype=np.uint8), "5000 x 5000 pixels"),
    ):  # fmt: skip
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, format=kind)
        with pytest.raises(ValueError, match=told):
            pixels_of(base64.b64encode(stream.getvalue()).decode())
    with pytest.raises(ValueError, match="no base64"):
        pixels_of("a b")
