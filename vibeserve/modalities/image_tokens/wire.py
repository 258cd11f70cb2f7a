"""Images drawn token by token on the wire: the route and fields of `image.wire`, but for how the image is drawn.

    POST /v1/images/generations
    {"model": ..., "prompt": "...", "size": "256x256", "n": 1, "response_format": "b64_json",
     "guidance": 5.0, "temperature": 1.0, "seed": 7, "return_token_ids": true}

    {"created": 1764590000, "data": [{"b64_json": "<PNG>", "seed": 7, "token_ids": [17, 903, ...]}]}

`guidance`, `temperature`, `seed` and `return_token_ids` are extensions. `token_ids` are the codes that the picture was
decoded from, row by row: by them a wrong picture is told from rounding, which may turn a code that was nearly another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vibeserve.contract import Request, SendError
from vibeserve.modalities.image.wire import image_in, plain_body, png_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


def body_of(request: Request, *, model: str) -> dict[str, Any]:
    """JSON of the request."""
    body = plain_body(request, model=model)
    return body | {"temperature": request.payload["temperature"], "return_token_ids": True}


def read_answer(body: bytes) -> dict[str, Any]:
    """The output of an answer, unjudged: `{"png": base64, "token_ids": [...]}`, no ids where none came. SendError for
    one of another shape."""
    image = image_in(body)
    token_ids = image.get("token_ids", [])
    if not isinstance(token_ids, list):
        raise SendError("malformed answer (token_ids that are no list)")
    return {"png": image["b64_json"], "token_ids": token_ids}


def output_of(pixels: NDArray[np.uint8], token_ids: Sequence[int]) -> dict[str, Any]:
    """JSON data of one image: pixels [height, width, 3]."""
    return {"png": png_of(pixels), "token_ids": list(token_ids)}
