"""Images on the wire: OpenAI's route of image generation with what a diffusion model is asked for, and what it brings.

    POST /v1/images/generations
    {"model": ..., "prompt": "...", "size": "128x128", "n": 1, "response_format": "b64_json",
     "steps": 10, "guidance": 4.0, "seed": 7, "return_latents": true}

    {"created": 1764590000, "data": [{"b64_json": "<PNG>", "seed": 7, "latents": "<f32, little-endian>"}]}

`steps`, `guidance`, `seed` and `return_latents` are extensions: clients that do not know them get the server's defaults
and a seed that it draws and tells. `latents` are [channels, height / 8, width / 8] at the end of all steps, before the
decoder: they tell a wrong picture from rounding more sharply than pixels do.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vibeserve.contract import Record, Request, SendError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

IMAGES_PATH = "/v1/images/generations"
PIXELS_PER_LATENT = 8
MAX_PIXELS = 1 << 24
"""of a PNG that is decoded at all"""


@dataclass(frozen=True, kw_only=True)
class ImageRecord(Record):
    """One image. `output`: `{"png": base64, "latents": base64}`; latents are empty where they were not asked for."""


def body_of(request: Request, *, model: str, is_plain: bool = False) -> dict[str, Any]:
    """JSON of the request. `is_plain`: without the latents that only the check asks for."""
    payload = request.payload
    body = plain_body(request, model=model) | {"steps": payload["steps"]}
    is_plain = is_plain or bool(payload.get("is_plain"))
    return body if is_plain else body | {"return_latents": True}


def plain_body(request: Request, *, model: str) -> dict[str, Any]:
    """JSON of what every model that draws is asked."""
    payload = request.payload
    return {
        "model": model, "prompt": payload["prompt"], "size": payload["size"], "n": 1, "response_format": "b64_json",
        "guidance": payload["guidance"], "seed": payload["seed"],
    }  # fmt: skip


def read_answer(body: bytes) -> dict[str, Any]:
    """The output of an answer, undecoded. SendError for one of another shape."""
    image = image_in(body)
    latents = image.get("latents", "")
    if not isinstance(latents, str):
        raise SendError("malformed answer (latents that are no text)")
    return {"png": image["b64_json"], "latents": latents}


def image_in(body: bytes) -> dict[str, Any]:
    """The one entry of `data`, whose `b64_json` is text. SendError for an answer of another shape."""
    try:
        (image,) = json.loads(body)["data"]
        if not isinstance(image["b64_json"], str):
            raise TypeError("no base64")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise SendError(f"malformed answer ({type(error).__name__})") from error
    found: dict[str, Any] = image
    return found


def output_of(pixels: NDArray[np.uint8], latents: NDArray[np.float32]) -> dict[str, Any]:
    """JSON data of one image: pixels [height, width, 3], latents [channels, height, width]."""
    return {"png": png_of(pixels), "latents": base64.b64encode(latents.astype("<f4").tobytes()).decode()}


def png_of(pixels: NDArray[np.uint8]) -> str:
    """Base64 of a PNG of pixels [height, width, 3]."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="PNG")
    return base64.b64encode(stream.getvalue()).decode()


def pixels_of(png: str) -> NDArray[np.uint8]:
    """[height, width, 3] of a base64 PNG, every byte of it read. ValueError for what is none, with the reason."""
    import numpy as np
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(_bytes_of(png)), formats=["PNG"]) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ValueError(f"a PNG of {image.width} x {image.height} pixels")
            if image.mode != "RGB":
                raise ValueError(f"a PNG of mode {image.mode}, not RGB")
            image.load()
            return np.asarray(image)
    except (UnidentifiedImageError, OSError, SyntaxError, EOFError) as error:
        raise ValueError(f"no PNG ({type(error).__name__})") from error


def latents_of(latents: str) -> NDArray[np.float32]:
    """The flat values. ValueError for what is none."""
    import numpy as np

    data = _bytes_of(latents)
    if not data or len(data) % 4:
        raise ValueError(f"{len(data)} bytes of latents")
    return np.frombuffer(data, dtype="<f4")


def _bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError("no base64") from error
