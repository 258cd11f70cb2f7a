"""Images of the server that is probed, and when two of them are the same."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from vibeserve.contract import Pool, Request
from vibeserve.modalities import open_bundle
from vibeserve.modalities.image.check import LATENT_MAX, PIXEL_MAX, pixel_error
from vibeserve.modalities.image.wire import IMAGES_PATH, body_of, image_in, latents_of, pixels_of, read_answer
from vibeserve.modalities.probe_http import PlainHttp, expect, expect_error
from vibeserve.modalities.probes import ProbeJob

NUM_REQUESTS = 3
PROBE_STEPS = 2
"""of most images: what is looked at here does not depend on their number"""


@dataclass(frozen=True, kw_only=True)
class Image:
    png: str
    seed: Any
    latents: str = ""
    token_ids: tuple[Any, ...] = ()

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of the decoded picture."""
        pixels = pixels_of(self.png)
        return pixels.shape[1], pixels.shape[0]


class Drawer:
    """The server that is probed, and bodies to ask it with."""

    def __init__(self, job: ProbeJob, *, deadline_s: float) -> None:
        self.http = PlainHttp(job.base_url, deadline_s=deadline_s)
        self._job = job
        self._drawn: dict[str, Image] = {}

    @cached_property
    def model(self) -> str:
        return str(json.loads(self.http.expect_ok("/v1/models"))["data"][0]["id"])

    @cached_property
    def bodies(self) -> list[dict[str, Any]]:
        """Of the pool that anybody may see."""
        requests = open_bundle(self._job.bundle).workload.requests(self._job.seed, Pool.visible)
        return [self._body_of(next(requests)) for _ in range(NUM_REQUESTS)]

    def _body_of(self, request: Request) -> dict[str, Any]:
        return {**body_of(request, model=self.model), "steps": PROBE_STEPS}

    def _image_of(self, answer: bytes) -> Image:
        found = read_answer(answer)
        return Image(png=found["png"], latents=found["latents"], seed=image_in(answer).get("seed"))

    @property
    def size(self) -> tuple[int, int]:
        """The model's own."""
        width, height = self.bodies[0]["size"].split("x")
        return int(width), int(height)

    def first(self, body: Mapping[str, Any]) -> Image:
        """The image of a body, drawn when it is first asked for: `check_repeats` has seen that it comes again."""
        key = json.dumps(body, sort_keys=True)
        if key not in self._drawn:
            self._drawn[key] = self.drawn(body)
        return self._drawn[key]

    def drawn(self, body: Mapping[str, Any]) -> Image:
        """The one image of the answer. ProbeFailure where it is refused."""
        asked = {name: value for name, value in body.items() if value is not None}
        status, _, answer = self.http.ask("POST", IMAGES_PATH, body=json.dumps(asked).encode())
        expect(status == 200, f"an image answers {status}")
        return self._image_of(answer)

    def refused(self, body: Mapping[str, Any], what: str, *, wanted: int | None = None) -> None:
        asked = {name: value for name, value in body.items() if value is not None}
        status, _, answer = self.http.ask("POST", IMAGES_PATH, body=json.dumps(asked).encode())
        expect_error(what, status, json.loads(answer), wanted=wanted)


def concurrently(drawer: Drawer, bodies: Sequence[Mapping[str, Any]]) -> list[Image]:
    """All at once, in their order."""
    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(drawer.drawn, bodies))


def alike(one: Image, other: Image, detail: str) -> None:
    """ProbeFailure with `detail` where two images differ by more than rounding may."""
    expect(_distance(one, other) <= 1.0, detail)


def unlike(one: Image, other: Image, detail: str) -> None:
    """ProbeFailure with `detail` where two images differ by less than what was asked of them lets expect."""
    expect(_distance(one, other) > 1.0, detail)


def _distance(one: Image, other: Image) -> float:
    """In bounds of the check: beyond 1 it is another image, by its latents where both have some, else by its pixels."""
    import numpy as np

    first, second = pixels_of(one.png), pixels_of(other.png)
    if first.shape != second.shape:
        return float("inf")
    if not (one.latents and other.latents):
        return pixel_error(first, second) / PIXEL_MAX
    right, found = latents_of(one.latents).astype(np.float64), latents_of(other.latents).astype(np.float64)
    if right.shape != found.shape:
        return float("inf")
    return float(np.linalg.norm(found - right) / np.linalg.norm(right)) / LATENT_MAX
