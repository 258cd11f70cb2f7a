"""What a body of `/v1/images/generations` asks for, and what the answer says."""

from __future__ import annotations

import base64
import time
from typing import Any

from .fields import check_form, check_length, flag_in, guidance_in, real_in, seed_in, text_in
from .interfaces import Drawn, ModelConfig, Request, TokenizerLike
from .parameters import Parameters
from .protocol import ApiError

PATH = "/v1/images/generations"
MAX_TEMPERATURE = 10.0


class Api:
    """Reads requests; ApiError 400 with the field's name for what cannot be drawn. Fields that OpenAI knows and that
    change nothing here (`user`, `quality`, `style`) are ignored."""

    def __init__(self, *, config: ModelConfig, tokenizer: TokenizerLike, parameters: Parameters) -> None:
        self._config, self._tokenizer, self._parameters = config, tokenizer, parameters

    def parse(self, body: dict[str, Any], *, request_id: str) -> Request:
        check_form(body)
        self._check_size(body.get("size"))
        if body.get("steps") is not None:
            raise ApiError(400, "steps: this model draws token by token, and has no steps", param="steps")
        default, meaning = self._parameters.default_temperature, "from 0 (the likeliest code)"
        temperature = real_in(body, "temperature", default, low=0.0, high=MAX_TEMPERATURE, meaning=meaning)
        return Request(
            request_id=request_id,
            token_ids=self._prompt(text_in(body)),
            guidance=guidance_in(body, parameters=self._parameters),
            temperature=temperature,
            seed=seed_in(body),
            returns_token_ids=flag_in(body, "return_token_ids"),
        )

    def _prompt(self, prompt: str) -> tuple[int, ...]:
        config = self._config
        token_ids = tuple(self._tokenizer.encode(config.prompt_template.replace("{prompt}", prompt)))
        check_length(token_ids, most=config.max_positions - config.num_tokens - 2)
        return token_ids

    def _check_size(self, size: Any) -> None:
        own = f"{self._config.side_px}x{self._config.side_px}"
        if size not in (None, "auto", own):
            raise ApiError(400, f"size: this model draws {own} alone", param="size")


def render(drawn: Drawn, request: Request) -> dict[str, Any]:
    image: dict[str, Any] = {"b64_json": base64.b64encode(drawn.png).decode(), "seed": drawn.seed}
    if request.returns_token_ids:
        image["token_ids"] = drawn.source.tolist()
    return {"created": int(time.time()), "data": [image]}
