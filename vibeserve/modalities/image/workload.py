"""Images: what is asked (`vibeserve.workloads.text_to_image`), how it is sent and what is measured (`metrics`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from vibeserve.contract import Context, Metric, Pool, Request, SendError, Session, Window
from vibeserve.core.documents import from_data
from vibeserve.modalities.image.metrics import MEASURED, measure_images
from vibeserve.modalities.image.wire import IMAGES_PATH, PIXELS_PER_LATENT, ImageRecord, body_of, read_answer
from vibeserve.spec import Workload

SHORT_STEPS = 2
AUDITED_STEPS = 2

BodyOf = Callable[..., dict[str, Any]]
"""(request, *, model) -> JSON of the request"""
ReadAnswer = Callable[[bytes], dict[str, Any]]
"""-> output of an answer; SendError for one of another shape"""


def configure(context: Context) -> ImageWorkload:
    return ImageWorkload(context, body_of=body_of, read_answer=read_answer)


class PictureWorkload:
    """What images share however they are drawn: how they are sent, records and measures."""

    METRICS: Sequence[Metric] = MEASURED
    RECORD = ImageRecord

    def __init__(self, context: Context, *, body_of: BodyOf, read_answer: ReadAnswer) -> None:
        self._context = context
        self._body_of = body_of
        self._read_answer = read_answer

    @cached_property
    def declared(self) -> Workload:
        return from_data(Workload, dict(self._context.workload))

    async def send(self, session: Session, request: Request) -> ImageRecord:
        """One image in one answer."""
        try:
            answer = await session.post(IMAGES_PATH, self._body_of(request, model=session.model))
            return ImageRecord(request=request, output=self._read_answer(answer.body))
        except SendError as error:
            return ImageRecord(request=request, error=str(error))

    def measure(self, records: Sequence[ImageRecord], windows: Sequence[Window]) -> dict[str, float]:
        return measure_images(records, windows)


class ImageWorkload(PictureWorkload):
    """See `contract.Workload`. The tokenizer is loaded when requests are made, never to send them."""

    def requests(self, seed: int, pool: Pool) -> Iterator[Request]:
        from vibeserve.weights import load_tokenizer
        from vibeserve.workloads.text_to_image import text_to_image_stream

        folder = Path(self._context.model_dir)
        return text_to_image_stream(
            self.declared, tokenizer=load_tokenizer(folder), size=size_of(folder), pool=pool, seed=seed
        )

    def shortened(self, request: Request) -> Request:
        return with_payload(request, steps=min(SHORT_STEPS, request.payload["steps"]))

    def audited(self, request: Request) -> Request:
        """Few steps, and prompts of so many characters that every prompt has them: all are then of one shape."""
        prompt = request.payload["prompt"][: self.declared.prompt_tokens_min]
        return with_payload(request, steps=min(AUDITED_STEPS, request.payload["steps"]), prompt=prompt)

    def plain(self, request: Request) -> Request:
        """Without latents: a server that is not judged need not return them."""
        return with_payload(request, is_plain=True)


def with_payload(request: Request, **changes: Any) -> Request:
    return replace(request, payload={**request.payload, **changes})


def size_of(model_dir: Path) -> str:
    """The model's own size, `WIDTHxHEIGHT` in pixels."""
    config = json.loads((model_dir / "f32" / "config.json").read_text(encoding="utf-8"))
    width, height = (PIXELS_PER_LATENT * config[f"image_latent_{side}"] for side in ("width", "height"))
    return f"{width}x{height}"
