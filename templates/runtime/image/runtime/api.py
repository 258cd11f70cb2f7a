"""What a body of `/v1/images/generations` asks for, and what the answer says."""

from __future__ import annotations

import base64
import re
import time
from typing import Any

from .fields import check_form, check_length, flag_in, guidance_in, number_in, seed_in, text_in
from .interfaces import PIXELS_PER_LATENT, Drawn, ModelConfig, Request, TokenizerLike
from .parameters import Parameters
from .protocol import ApiError

PATH = "/v1/images/generations"


class Api:
    """Reads requests; ApiError 400 with the field's name for what cannot be drawn. Fields that OpenAI knows and that
    change nothing here (`user`, `quality`, `style`) are ignored."""

    def __init__(self, *, config: ModelConfig, tokenizer: TokenizerLike, parameters: Parameters) -> None:
        self._config, self._tokenizer, self._parameters = config, tokenizer, parameters

    def parse(self, body: dict[str, Any], *, request_id: str) -> Request:
        check_form(body)
        width_px, height_px = self._size(body.get("size"))
        parameters = self._parameters
        return Request(
            request_id=request_id,
            token_ids=self._prompt(text_in(body), width_px=width_px, height_px=height_px),
            width_px=width_px,
            height_px=height_px,
            steps=number_in(body, "steps", parameters.default_steps, low=1, high=parameters.max_steps),
            guidance=guidance_in(body, parameters=parameters),
            seed=seed_in(body),
            returns_latents=flag_in(body, "return_latents"),
        )

    def _prompt(self, prompt: str, *, width_px: int, height_px: int) -> tuple[int, ...]:
        token_ids = tuple(self._tokenizer.encode(prompt))
        num_patches = width_px * height_px // self._config.patch_px**2
        check_length(token_ids, most=self._config.max_positions - num_patches - 3)
        return token_ids

    def _size(self, size: Any) -> tuple[int, int]:
        """Width and height."""
        config, unit = self._config, self._config.patch_px
        largest = (PIXELS_PER_LATENT * config.latent_width, PIXELS_PER_LATENT * config.latent_height)
        if size in (None, "auto"):
            return largest
        found = re.fullmatch(r"(\d{1,5})x(\d{1,5})", size) if isinstance(size, str) else None
        sides = (int(found[1]), int(found[2])) if found else (0, 0)
        if config.semantic.num_layers and sides != largest:
            # its positions are of one size
            raise ApiError(400, f"size: this model draws {largest[0]}x{largest[1]} alone", param="size")
        if not all(0 < side <= most and side % unit == 0 for side, most in zip(sides, largest, strict=True)):
            text = f"size: WIDTHxHEIGHT in multiples of {unit}, at most {largest[0]}x{largest[1]}"
            raise ApiError(400, text, param="size")
        return sides


def render(drawn: Drawn, request: Request) -> dict[str, Any]:
    image: dict[str, Any] = {"b64_json": base64.b64encode(drawn.png).decode(), "seed": drawn.seed}
    if request.returns_latents:
        image["latents"] = base64.b64encode(drawn.source.numpy().astype("<f4").tobytes()).decode()
    return {"created": int(time.time()), "data": [image]}
