"""A request's body, read: greedy completions of a fixed or an ended length, free or under a JSON Schema.

What would change the answer and is not done here is refused, never ignored. `prediction` is the exception: it changes
when tokens come and not which, so that a server may leave it aside.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

GREEDY_ONLY: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "stop": ([], ""),
    "logprobs": (0,),
    "top_p": (1, 1.0),
    "top_k": (-1, 0),
    "min_p": (0, 0.0),
    "presence_penalty": (0, 0.0),
    "frequency_penalty": (0, 0.0),
    "repetition_penalty": (1, 1.0),
    "logit_bias": ({},),
    "echo": (False,),
    "suffix": ("",),
}
"""field -> values that are as good as none"""


class BadRequestError(ValueError):
    """The request cannot be served as it is asked: status 400."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One completion. `schema` is the reply's JSON Schema as text, None where it is free."""

    prompt_ids: tuple[int, ...]
    max_tokens: int
    ignore_eos: bool = False
    schema: str | None = None
    is_streamed: bool = False
    wants_usage: bool = False


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a server takes: so many tokens of prompt and reply together, and schemas or none."""

    max_sequence_tokens: int
    vocab_size: int
    constrains: bool


def parse(body: Mapping[str, Any], *, encode: Callable[[str], list[int]], limits: Limits) -> Ask:
    """BadRequestError where the body is wrong or asks for what is not done here."""
    for name, neutral in GREEDY_ONLY.items():
        if body.get(name) is not None and body[name] not in neutral:
            raise BadRequestError(f"'{name}' is not supported by this server")
    temperature = body.get("temperature")
    if temperature is None or temperature != 0:
        raise BadRequestError("'temperature' must be 0: this server decodes greedily")
    prompt_ids = _prompt_ids(body.get("prompt"), encode=encode, vocab_size=limits.vocab_size)
    max_tokens = body.get("max_tokens", 16)
    if type(max_tokens) is not int or max_tokens < 1:
        raise BadRequestError("'max_tokens' must be an integer of 1 or more")
    if len(prompt_ids) + max_tokens > limits.max_sequence_tokens:
        raise BadRequestError(
            f"this server's maximum context length is {limits.max_sequence_tokens} tokens; the request asks for "
            f"{len(prompt_ids) + max_tokens} ({len(prompt_ids)} in the prompt, {max_tokens} for the completion)"
        )
    options = body.get("stream_options") or {}
    return Ask(
        prompt_ids=prompt_ids,
        max_tokens=max_tokens,
        ignore_eos=bool(body.get("ignore_eos", False)),
        schema=_schema(body.get("response_format"), constrains=limits.constrains),
        is_streamed=bool(body.get("stream", False)),
        wants_usage=bool(options.get("include_usage", False)),
    )


def _prompt_ids(prompt: Any, *, encode: Callable[[str], list[int]], vocab_size: int) -> tuple[int, ...]:
    if isinstance(prompt, str):
        ids = tuple(encode(prompt))
    elif isinstance(prompt, list) and all(type(token) is int for token in prompt):
        ids = tuple(prompt)
    else:
        raise BadRequestError("'prompt' must be one string or one list of token ids")
    if not ids:
        raise BadRequestError("'prompt' is empty")
    if not 0 <= min(ids) <= max(ids) < vocab_size:
        raise BadRequestError(f"token ids must be from 0 to {vocab_size - 1}")
    return ids


def _schema(form: Any, *, constrains: bool) -> str | None:
    if form is None or (isinstance(form, dict) and form.get("type") == "text"):
        return None
    if not constrains:
        raise BadRequestError("'response_format' is not supported by this server")
    if not isinstance(form, dict) or form.get("type") != "json_schema":
        raise BadRequestError("'response_format.type' must be text or json_schema")
    declared = form.get("json_schema")
    schema = declared.get("schema") if isinstance(declared, dict) else None
    if not isinstance(schema, dict):
        raise BadRequestError("'response_format.json_schema.schema' must be a JSON Schema object")
    return json.dumps(schema)
