"""What the tests of images token by token share: a workload, requests, outputs and records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from image_samples import context as image_context
from image_samples import picture

from vibeserve.contract import Context, Request
from vibeserve.modalities.image.wire import ImageRecord
from vibeserve.modalities.image_tokens.wire import output_of
from vibeserve.spec import Workload

WORKLOAD = Workload(
    kind="text_to_image", prompt_tokens_min=16, prompt_tokens_max=32, guidance_scale=3.0, temperature=1.0,
    output_tokens_min=64, output_tokens_max=64,
)  # fmt: skip
NUM_TOKENS = 64


def context(model_dir: Path | None = None) -> Context:
    return image_context(model_dir, workload=WORKLOAD)


def request_of(name: str = "r", **changes: Any) -> Request:
    payload = {"prompt": "a house by the sea", "size": "64x64", "guidance": 3.0, "temperature": 1.0, "seed": 7}
    return Request(request_id=name, payload=payload | changes)


def output(seed: int = 0) -> dict[str, Any]:
    """A random picture and codes."""
    import random

    drawn = random.Random(seed)
    return output_of(picture(seed, height=64, width=64), [drawn.randrange(256) for _ in range(NUM_TOKENS)])


def scored(found: Any, **changes: Any) -> dict[str, Any]:
    """What a reference says to an output that is right."""
    return {"margins": [0.0] * NUM_TOKENS, "png": found["png"], "problem": ""} | changes


def record_of(found: Any = None, *, name: str = "r", error: str | None = None, **changes: Any) -> ImageRecord:
    return ImageRecord(request=request_of(name, **changes), output=found, end_s=1.0, error=error)
