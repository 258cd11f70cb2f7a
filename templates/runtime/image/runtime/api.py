"""What a body of `/v1/images/generations` asks for, and what the answer says."""

from __future__ import annotations

import base64
import math
import re
import secrets
import time
from typing import Any

from .interfaces import PIXELS_PER_LATENT, Drawn, ModelConfig, Request, TokenizerLike
from .parameters import Parameters
from .protocol import ApiError

PATH = "/v1/images/generations"
SEED_BITS = 32
"""that torch's CPU generator reads: a larger seed would be a smaller one in disguise, and is refused"""
MAX_GUIDANCE = 100.0


class Api:
    """Reads requests; ApiError 400 with the field's name for what cannot be drawn. Fields that OpenAI knows and that
    change nothing here (`user`, `quality`, `style`) are ignored."""

    def __init__(self, *, config: ModelConfig, tokenizer: TokenizerLike, parameters: Parameters) -> None:
        self._config, self._tokenizer, self._parameters = config, tokenizer, parameters

    def parse(self, body: dict[str, Any], *, request_id: str) -> Request:
        if number_in(body, "n", 1, low=1, high=10) != 1:
            raise ApiError(400, "n: one image a request is drawn", param="n")
        for name, valid in (("response_format", "b64_json"), ("output_format", "png")):
            if body.get(name) not in (None, valid):
                raise ApiError(400, f"{name}: only {valid} is served", param=name)
        returns_latents = body.get("return_latents", False)
        if not isinstance(returns_latents, bool):
            raise ApiError(400, "return_latents: true or false", param="return_latents")
        width_px, height_px = self._size(body.get("size"))
        parameters = self._parameters
        return Request(
            request_id=request_id,
            token_ids=self._prompt(body.get("prompt"), width_px=width_px, height_px=height_px),
            width_px=width_px,
            height_px=height_px,
            steps=number_in(body, "steps", parameters.default_steps, low=1, high=parameters.max_steps),
            guidance=guidance_of(body.get("guidance"), default=parameters.default_guidance),
            seed=number_in(body, "seed", secrets.randbits(SEED_BITS), low=0, high=(1 << SEED_BITS) - 1),
            returns_latents=returns_latents,
        )

    def _prompt(self, prompt: Any, *, width_px: int, height_px: int) -> tuple[int, ...]:
        if not isinstance(prompt, str) or not prompt:
            raise ApiError(400, "prompt: a text that is not empty", param="prompt")
        token_ids = tuple(self._tokenizer.encode(prompt))
        num_patches = width_px * height_px // self._config.patch_px**2
        most = self._config.max_positions - num_patches - 3
        if len(token_ids) > most:
            raise ApiError(400, f"prompt: {len(token_ids)} tokens; at most {most} fit beside the image", param="prompt")
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


def number_in(body: dict[str, Any], name: str, default: int, *, low: int, high: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not int or not low <= value <= high:
        raise ApiError(400, f"{name}: a whole number from {low} to {high}", param=name)
    return value


def guidance_of(value: Any, *, default: float) -> float:
    if value is None:
        return default
    is_number = type(value) in (int, float) and math.isfinite(value)
    if not is_number or not 1 <= value <= MAX_GUIDANCE:
        text = f"guidance: a number from 1 (the prompt alone) to {MAX_GUIDANCE:g}"
        raise ApiError(400, text, param="guidance")
    return float(value)


def render(drawn: Drawn, request: Request) -> dict[str, Any]:
    image: dict[str, Any] = {"b64_json": base64.b64encode(drawn.png).decode(), "seed": drawn.seed}
    if request.returns_latents:
        image["latents"] = base64.b64encode(drawn.latents).decode()
    return {"created": int(time.time()), "data": [image]}
