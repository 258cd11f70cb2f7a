"""Fields of a body that every model which draws reads alike; ApiError 400 with the field's name."""

from __future__ import annotations

import math
import secrets
from typing import Any

from .parameters import Parameters
from .protocol import ApiError

SEED_BITS = 32
"""that torch's CPU generator reads: a larger seed would be a smaller one in disguise, and is refused"""
MAX_GUIDANCE = 100.0


def check_form(body: dict[str, Any]) -> None:
    """One image, as base64 of a PNG."""
    if number_in(body, "n", 1, low=1, high=10) != 1:
        raise ApiError(400, "n: one image a request is drawn", param="n")
    for name, valid in (("response_format", "b64_json"), ("output_format", "png")):
        if body.get(name) not in (None, valid):
            raise ApiError(400, f"{name}: only {valid} is served", param=name)


def flag_in(body: dict[str, Any], name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise ApiError(400, f"{name}: true or false", param=name)
    return value


def seed_in(body: dict[str, Any]) -> int:
    """Without one it is drawn."""
    return number_in(body, "seed", secrets.randbits(SEED_BITS), low=0, high=(1 << SEED_BITS) - 1)


def guidance_in(body: dict[str, Any], *, parameters: Parameters) -> float:
    default, meaning = parameters.default_guidance, "from 1 (the prompt alone)"
    return real_in(body, "guidance", default, low=1.0, high=MAX_GUIDANCE, meaning=meaning)


def text_in(body: dict[str, Any]) -> str:
    prompt = body.get("prompt")
    if not isinstance(prompt, str) or not prompt:
        raise ApiError(400, "prompt: a text that is not empty", param="prompt")
    return prompt


def check_length(token_ids: tuple[int, ...], *, most: int) -> None:
    if len(token_ids) > most:
        raise ApiError(400, f"prompt: {len(token_ids)} tokens; at most {most} fit beside the image", param="prompt")


def number_in(body: dict[str, Any], name: str, default: int, *, low: int, high: int) -> int:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not int or not low <= value <= high:
        raise ApiError(400, f"{name}: a whole number from {low} to {high}", param=name)
    return value


def real_in(body: dict[str, Any], name: str, default: float, *, low: float, high: float, meaning: str) -> float:
    """`meaning` stands for the lower bound in the error's text."""
    value = body.get(name)
    if value is None:
        return default
    is_number = type(value) in (int, float) and math.isfinite(value)
    if not is_number or not low <= value <= high:
        raise ApiError(400, f"{name}: a number {meaning} to {high:g}", param=name)
    return float(value)
