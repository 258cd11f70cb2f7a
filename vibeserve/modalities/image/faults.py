"""Planted faults of images: what a cheating or broken server would send, which must be refused, and bf16, which must
not."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

from vibeserve.contract import Context, Fault, References, Request
from vibeserve.modalities.image.wire import pixels_of, png_of
from vibeserve.modalities.image.workload import with_payload

LESS_GUIDANCE = 0.85
FEWER_STEPS = 0.8
Make = Callable[[References, Request, Request], Any]


def configure(context: Context) -> ImageFaults:
    return ImageFaults()


class ImageFaults:
    """See `contract.FaultsModule`."""

    FAULTS: Sequence[Fault] = ()

    def __init__(self) -> None:
        self.FAULTS = (
            Fault(name="other_prompt", is_wrong=True, make=_other_prompt),
            Fault(name="no_text", is_wrong=True, make=_drawn(lambda payload: {"prompt": ""})),
            Fault(name="half_the_prompt", is_wrong=True, make=_drawn(half_prompt)),
            Fault(name="one_step_fewer", is_wrong=True, make=_drawn(lambda payload: {"steps": payload["steps"] - 1})),
            Fault(name="fewer_steps", is_wrong=True, make=_drawn(_fewer_steps)),
            Fault(name="lower_guidance", is_wrong=True, make=_drawn(lower_guidance)),
            Fault(name="no_guidance", is_wrong=True, make=_drawn(lambda payload: {"guidance": 1.0})),
            Fault(name="other_seed", is_wrong=True, make=_drawn(lambda payload: {"seed": payload["seed"] + 1})),
            Fault(name="image_of_another_request", is_wrong=True, make=_another_image),
            Fault(name="half_the_resolution", is_wrong=True, make=_right(lambda right: changed(right, blurred))),
            Fault(name="smaller_image", is_wrong=True, make=_right(lambda right: changed(right, smaller))),
            Fault(name="constant_image", is_wrong=True, make=_right(lambda right: changed(right, constant))),
            Fault(name="mirrored_image", is_wrong=True, make=_right(lambda right: changed(right, mirrored))),
            Fault(name="png_header_and_garbage", is_wrong=True, make=_right(garbage)),
            Fault(name="truncated_png", is_wrong=True, make=_right(truncated)),
            Fault(name="no_latents", is_wrong=True, make=_no_latents),
            Fault(name="bfloat16", is_wrong=False, make=_bfloat16),
        )

    def shortened(self, request: Request) -> Request:
        """As it is: how much a step or the guidance weighs depends on their number."""
        return request


def _bfloat16(references: References, request: Request, other: Request) -> Any:
    return references.rounded().run(request)


def _drawn(changes: Callable[[dict[str, Any]], dict[str, Any]]) -> Make:
    """What the reference draws for a request that was changed; by a single step nothing can be taken away."""

    def make(references: References, request: Request, other: Request) -> Any:
        changed = with_payload(request, **changes(request.payload))
        return references.exact().run(changed)

    return make


def _other_prompt(references: References, request: Request, other: Request) -> Any:
    return references.exact().run(with_payload(request, prompt=other.payload["prompt"]))


def _another_image(references: References, request: Request, other: Request) -> Any:
    """Kept from an earlier request."""
    return references.exact().run(other)


def half_prompt(payload: dict[str, Any]) -> dict[str, Any]:
    return {"prompt": payload["prompt"][: len(payload["prompt"]) // 2]}


def _fewer_steps(payload: dict[str, Any]) -> dict[str, Any]:
    return {"steps": max(1, int(FEWER_STEPS * payload["steps"]))}


def lower_guidance(payload: dict[str, Any]) -> dict[str, Any]:
    return {"guidance": max(1.0, LESS_GUIDANCE * payload["guidance"])}


def _no_latents(references: References, request: Request, other: Request) -> Any:
    return references.exact().run(request) | {"latents": ""}


def _right(change: Callable[[Any], Any]) -> Make:
    """The right latents beside what `change` makes of the right output."""
    return lambda references, request, other: change(references.exact().run(request))


def changed(right: Any, change: Callable[[Any], Any]) -> Any:
    """A right output with another picture."""
    import numpy as np

    return right | {"png": png_of(np.ascontiguousarray(change(pixels_of(right["png"]))))}


def blurred(pixels: Any) -> Any:
    """Drawn at half the resolution and scaled up."""
    return pixels[::2, ::2].repeat(2, axis=0).repeat(2, axis=1)


def smaller(pixels: Any) -> Any:
    return pixels[::2, ::2]


def constant(pixels: Any) -> Any:
    """The mean of the right image everywhere: the best that one colour can do."""
    return 0 * pixels + pixels.mean(axis=(0, 1)).astype(pixels.dtype)


def mirrored(pixels: Any) -> Any:
    return pixels[:, ::-1]


def garbage(right: Any) -> Any:
    """A right header, with the right size in it, and nothing behind it that can be read."""
    data = base64.b64decode(right["png"])
    return right | {"png": base64.b64encode(data[:40] + b"\x5a" * (len(data) - 40)).decode()}


def truncated(right: Any) -> Any:
    data = base64.b64decode(right["png"])
    return right | {"png": base64.b64encode(data[: len(data) // 2]).decode()}
