"""The check of images: latents and pixels against the reference's, and pictures that come twice."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np
import pytest
from image_samples import context, output, picture, record_of, request_of

from vibeserve.accuracy.documents import Scores
from vibeserve.accuracy.judging import refusals_of
from vibeserve.contract import ReplyDistances
from vibeserve.modalities.image.check import LATENT_MAX, LATENT_MEAN, PIXEL_MAX, configure
from vibeserve.modalities.image.faults import configure as configure_faults
from vibeserve.modalities.image.wire import ImageRecord, output_of

RIGHT = output(1)


def refused(*served: Any, expected: Any = RIGHT) -> set[str]:
    check = configure(context())
    replies = [
        ReplyDistances(
            request_id=str(number),
            distances=tuple(check.compare(expected, ImageRecord(request=request_of(), output=each))),
        )
        for number, each in enumerate(served)
    ]
    refusals, _ = refusals_of(
        Scores(replies=tuple(replies), limits=tuple(check.LIMITS), judgement=check.judge(replies))
    )  # fmt: skip
    return {refusal.reason_class for refusal in refusals}


def with_png(data: bytes) -> dict[str, Any]:
    return RIGHT | {"png": base64.b64encode(data).decode()}


def with_picture(pixels: Any) -> dict[str, Any]:
    return RIGHT | {"png": output_of(pixels, np.zeros(1, dtype=np.float32))["png"]}


def test_the_right_image_passes_and_so_does_rounding() -> None:
    assert not refused(RIGHT)
    assert not refused(output(1, noise=0.8 * LATENT_MEAN), RIGHT)


def test_latents_are_held_one_by_one_and_together() -> None:
    assert refused(output(1, noise=1.2 * LATENT_MAX), *[RIGHT] * 9) == {"wrong_latents"}
    assert refused(*[output(1, noise=1.2 * LATENT_MEAN)] * 3) == {"wrong_latents"}
    assert refused(output(2)) == {"wrong_latents", "wrong_image"}


def test_pixels_are_held_beside_right_latents() -> None:
    pixels = picture(1).astype(np.float64)
    near = np.clip(pixels + 255 * 0.2 * PIXEL_MAX, 0, 255).astype(np.uint8)
    far = np.clip(pixels + 255 * 3 * PIXEL_MAX, 0, 255).astype(np.uint8)
    assert not refused(with_picture(near))
    assert refused(with_picture(far)) == {"wrong_image"}
    assert refused(with_picture(np.full_like(far, 128))) == {"wrong_image"}


@pytest.mark.parametrize(
    ("served", "reason"),
    [
        (with_png(b""), "missing_pixel_error"),
        (with_png(b"\x89PNG\r\n\x1a\n" + bytes(300)), "missing_pixel_error"),
        (with_png(base64.b64decode(RIGHT["png"])[:-200]), "missing_pixel_error"),
        (RIGHT | {"png": "%%%"}, "missing_pixel_error"),
        (with_picture(picture(1, height=8, width=8)), "missing_pixel_error"),
        (with_picture(picture(1)[:, :, 0]), "missing_pixel_error"),
        (RIGHT | {"latents": ""}, "missing_latent_error"),
        (RIGHT | {"latents": base64.b64encode(bytes(15)).decode()}, "missing_latent_error"),
        (RIGHT | {"latents": base64.b64encode(bytes(8)).decode()}, "missing_latent_error"),
        (RIGHT | {"latents": base64.b64encode(np.full(16, np.nan, "<f4").tobytes()).decode()}, "missing_latent_error"),
    ],
)
def test_what_is_no_image_is_refused(served: Any, reason: str) -> None:
    assert refused(served) == {reason}


def test_a_request_that_asked_for_no_latents_is_held_by_its_pixels() -> None:
    check = configure(context())
    asked = request_of(is_plain=True)
    for found, is_right in ((RIGHT | {"latents": ""}, True), (output(2) | {"latents": ""}, False)):
        (distance,) = check.compare(RIGHT, ImageRecord(request=asked, output=found))
        assert (distance.name, distance.values[0] <= PIXEL_MAX) == ("pixel_error", is_right)


def test_one_picture_for_several_seeds_is_found_without_a_reference() -> None:
    check = configure(context())
    records = [
        record_of(sent_s=0, end_s=1, name=str(number), seed=seed, found=output(seed % 2))
        for number, seed in enumerate((1, 2, 3))
    ]
    (finding,) = check.inspect(records)
    assert (finding.reason_class, finding.text) == ("repeated_image", "1 of 3 images came for another seed, too")
    again = [record_of(sent_s=0, end_s=1, name=name, seed=1, found=output(1)) for name in "ab"]
    assert not check.inspect([*again, record_of(sent_s=0, end_s=1, error="cut")])


def test_two_records_of_one_request_are_alike() -> None:
    check = configure(context())
    first, other = (record_of(sent_s=0, end_s=1, found=output(seed)) for seed in (1, 2))
    assert [distance.values for distance in check.same(first, first)] == [(0.0,), (0.0,)]
    assert all(distance.values[0] > 0.5 or distance.name != "latent_error" for distance in check.same(first, other))


class Exact:
    """A reference whose image is decided by every field of the request."""

    def run(self, request: Any) -> dict[str, Any]:
        key = sorted((name, str(value)) for name, value in request.payload.items())
        return output(zlib.crc32(str(key).encode()))


class References:
    def exact(self) -> Any:
        return Exact()

    rounded = exact


def test_every_wrong_fault_is_refused_and_the_noisy_one_is_not() -> None:
    request, other = request_of(), request_of("other", prompt="a lake", seed=9)
    right = Exact().run(request)
    faults = configure_faults(context()).FAULTS
    assert len(faults) == 17
    for fault in faults:
        made = fault.make(References(), request, other)
        assert bool(refused(made, expected=right)) is fault.is_wrong, fault.name
