"""From a request's JSON body to sequences: which fields are taken, and what is refused with which error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .interfaces import ModelConfig, SamplingParams, TokenizerLike
from .parameters import Parameters

MAX_LOGPROBS = 20
MAX_CHOICES = 128
"""the API's largest `n`"""
DEFAULT_COMPLETION_TOKENS = 16
"""the API's default of `max_tokens` for /v1/completions"""
MIN_TEMPERATURE = 1e-5
"""below it the division of the logits overflows; as good as greedy"""

NEUTRAL_ONLY: dict[str, tuple[Any, ...]] = {
    "best_of": (1,),
    "echo": (False,),
    "suffix": ("",),
    "use_beam_search": (False,),
    "min_tokens": (0,),
    "min_p": (0,),
    "top_k": (0, -1),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "stop_token_ids": ([],),
    "tools": ([],),
    "prompt_logprobs": (0,),
}
"""fields that would change the answer and are not implemented, with the values that change nothing"""


class ApiError(Exception):
    """An error of the API: HTTP status and the fields of its error object."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        self.status = status
        self.param = param
        self.code = code
        super().__init__(message)

    def body(self) -> dict[str, Any]:
        kinds = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
        kind = "server_error" if self.status >= 500 else kinds.get(self.status, "invalid_request_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}


@dataclass(frozen=True, kw_only=True)
class Generation:
    """A validated request."""

    prompts: tuple[tuple[int, ...], ...]
    params: SamplingParams
    prediction: tuple[int, ...]
    """ids of what the client expects the answer to be; empty = it predicts nothing"""
    choices_per_prompt: int
    """`n`: choices `n * i` to `n * (i + 1) - 1` are of prompt i"""
    response_format: dict[str, Any] | None
    is_chat: bool
    is_streamed: bool
    wants_usage: bool
    wants_token_ids: bool

    @property
    def num_choices(self) -> int:
        return len(self.prompts) * self.choices_per_prompt

    def prompt_of(self, index: int) -> tuple[int, ...]:
        """Ids of the prompt of choice `index`."""
        return self.prompts[index // self.choices_per_prompt]


class Fields:
    """Typed access to a JSON object. A field that is absent or null has its default; a wrong type is a 400."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self.data = data

    def get(self, name: str, kinds: type | tuple[type, ...], default: Any, expected: str) -> Any:
        value = self.data.get(name)
        if value is None:
            return default
        is_bool_for_number = isinstance(value, bool) and kinds is not bool
        if not isinstance(value, kinds) or is_bool_for_number:
            raise ApiError(400, f"'{name}' must be {expected}", param=name)
        return value

    def flag(self, name: str) -> bool:
        return bool(self.get(name, bool, False, "true or false"))

    def number(self, name: str, default: float, *, low: float, high: float) -> float:
        value = float(self.get(name, (int, float), default, f"a number from {low:g} to {high:g}"))
        if not low <= value <= high:
            raise ApiError(400, f"'{name}' must be from {low:g} to {high:g}, got {value:g}", param=name)
        return value

    def integer(self, name: str, default: int | None, *, low: int, high: int) -> int | None:
        value: int | None = self.get(name, int, default, "an integer")
        if value is not None and not low <= value <= high:
            raise ApiError(400, f"'{name}' must be from {low} to {high}, got {value}", param=name)
        return value


def parse_completion(body: dict[str, Any], *, tokenizer: TokenizerLike, limits: Limits) -> Generation:
    """Body of /v1/completions. Raises ApiError."""
    fields = Fields(body)
    check_neutral(body)
    prompts = parse_prompts(body.get("prompt"), tokenizer=tokenizer, limits=limits)
    longest = max(map(len, prompts))
    max_tokens = fields.integer("max_tokens", DEFAULT_COMPLETION_TOKENS, low=1, high=1 << 31)
    assert max_tokens is not None
    return Generation(
        prompts=prompts,
        params=parse_sampling(
            fields,
            max_tokens=limits.fit(longest, max_tokens),
            num_logprobs=fields.integer("logprobs", None, low=0, high=MAX_LOGPROBS),
        ),
        is_chat=False,
        **parse_choices(fields, tokenizer=tokenizer, num_prompts=len(prompts), limits=limits),
        **parse_delivery(fields),
    )


def parse_chat(body: dict[str, Any], *, tokenizer: TokenizerLike, limits: Limits) -> Generation:
    """Body of /v1/chat/completions. Raises ApiError."""
    fields = Fields(body)
    check_neutral(body)
    try:
        prompt = tuple(tokenizer.render_chat(parse_messages(body.get("messages"))))
    except ValueError as error:
        raise ApiError(400, str(error), param="messages") from error
    max_tokens = fields.integer("max_completion_tokens", None, low=1, high=1 << 31)
    if max_tokens is None:
        max_tokens = fields.integer("max_tokens", None, low=1, high=1 << 31)
    num_logprobs = None
    if fields.flag("logprobs"):
        num_logprobs = fields.integer("top_logprobs", 0, low=0, high=MAX_LOGPROBS)
    return Generation(
        prompts=(prompt,),
        params=parse_sampling(
            fields, max_tokens=limits.fit(len(prompt), max_tokens), num_logprobs=num_logprobs
        ),
        is_chat=True,
        **parse_choices(fields, tokenizer=tokenizer, num_prompts=1, limits=limits),
        **parse_delivery(fields),
    )


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a prompt has to fit."""

    max_context_tokens: int
    vocab_size: int
    max_prompts: int

    @classmethod
    def of(cls, config: ModelConfig, parameters: Parameters) -> Limits:
        context = min(parameters.max_context_tokens, config.max_position_embeddings)
        return cls(max_context_tokens=context, vocab_size=config.vocab_size, max_prompts=parameters.max_waiting)

    def fit(self, num_prompt_tokens: int, max_tokens: int | None) -> int:
        """Output tokens of a prompt: as asked, or all that the context leaves. Raises ApiError where that is short."""
        room = self.max_context_tokens - num_prompt_tokens
        wanted = max_tokens if max_tokens is not None else max(room, 1)
        if wanted > room:
            raise ApiError(
                400,
                f"this model's maximum context length is {self.max_context_tokens} tokens; the request asks for "
                f"{num_prompt_tokens + wanted} ({num_prompt_tokens} in the prompt, {wanted} for the completion)",
                code="context_length_exceeded",
            )
        return wanted


def check_neutral(body: Mapping[str, Any]) -> None:
    """Refuse what would change the answer and is not implemented; fields that are unknown altogether are ignored."""
    for name, neutral in NEUTRAL_ONLY.items():
        value = body.get(name)
        if value is not None and value not in neutral:
            raise ApiError(400, f"'{name}' is not supported by this server", param=name, code="unsupported_parameter")


def parse_delivery(fields: Fields) -> dict[str, Any]:
    """The fields of Generation that say how the answer is delivered."""
    options = fields.get("stream_options", dict, {}, "an object")
    return {
        "response_format": fields.get("response_format", dict, None, "an object"),
        "is_streamed": fields.flag("stream"),
        "wants_usage": Fields(options).flag("include_usage"),
        "wants_token_ids": fields.flag("return_token_ids"),
    }


def parse_choices(fields: Fields, *, tokenizer: TokenizerLike, num_prompts: int, limits: Limits) -> dict[str, Any]:
    """The fields of Generation that say how many choices there are, and what is predicted of the only one."""
    num = fields.integer("n", 1, low=1, high=MAX_CHOICES)
    assert num is not None
    num_choices = num_prompts * num
    if num_choices > limits.max_prompts:
        raise ApiError(400, f"'n' makes {num_choices} choices; at most {limits.max_prompts}", param="n")
    prediction = parse_prediction(fields, tokenizer=tokenizer, num_choices=num_choices)
    return {"choices_per_prompt": num, "prediction": prediction}


def parse_prediction(fields: Fields, *, tokenizer: TokenizerLike, num_choices: int) -> tuple[int, ...]:
    """Ids of the predicted output, `{"type": "content", "content": text or text parts}`; () where there is none."""
    prediction = fields.get("prediction", dict, None, "an object")
    if prediction is None:
        return ()
    if prediction.get("type") != "content":
        raise ApiError(400, "'prediction.type' must be 'content'", param="prediction")
    if prediction.get("content") is None:
        raise ApiError(400, "'prediction' needs a 'content'", param="prediction")
    if num_choices > 1:
        raise ApiError(400, f"'prediction' is of one completion, {num_choices} are asked for", param="prediction")
    text = content_text(prediction["content"], param="prediction", what="a prediction's 'content'")
    return tuple(tokenizer.encode_continuation(text))


def parse_sampling(fields: Fields, *, max_tokens: int, num_logprobs: int | None) -> SamplingParams:
    stop = fields.get("stop", (str, list), [], "a string or a list of strings")
    stop = [stop] if isinstance(stop, str) else stop
    if not all(isinstance(text, str) and text for text in stop):
        raise ApiError(400, "'stop' must be a string or a list of strings, none of them empty", param="stop")
    top_p = fields.number("top_p", 1.0, low=0.0, high=1.0)
    if top_p == 0.0:
        raise ApiError(400, "'top_p' must be above 0", param="top_p")
    temperature = fields.number("temperature", 1.0, low=0.0, high=2.0)
    return SamplingParams(
        max_tokens=max_tokens,
        temperature=temperature if temperature >= MIN_TEMPERATURE else 0.0,
        top_p=top_p,
        seed=fields.integer("seed", None, low=-(1 << 63), high=(1 << 63) - 1),
        stop=tuple(stop),
        ignore_eos=fields.flag("ignore_eos"),
        num_logprobs=num_logprobs,
    )


def parse_prompts(prompt: Any, *, tokenizer: TokenizerLike, limits: Limits) -> tuple[tuple[int, ...], ...]:
    """A string, a list of strings, a list of token ids, or a list of such lists -> ids of each prompt."""
    if isinstance(prompt, str) or (isinstance(prompt, list) and prompt and is_token_id(prompt[0])):
        prompt = [prompt]
    if not isinstance(prompt, list) or not prompt:
        raise ApiError(400, "'prompt' must be a string, a list of strings, or token ids", param="prompt")
    if len(prompt) > limits.max_prompts:
        raise ApiError(400, f"'prompt' holds {len(prompt)} prompts; at most {limits.max_prompts}", param="prompt")
    return tuple(parse_prompt(item, tokenizer=tokenizer, limits=limits) for item in prompt)


def parse_prompt(prompt: Any, *, tokenizer: TokenizerLike, limits: Limits) -> tuple[int, ...]:
    if isinstance(prompt, str):
        ids = tuple(tokenizer.encode(check_text(prompt, param="prompt")))
    elif isinstance(prompt, list) and all(is_token_id(item) for item in prompt):
        ids = tuple(prompt)
    else:
        raise ApiError(400, "'prompt' must be a string, a list of strings, or token ids", param="prompt")
    if not ids:
        raise ApiError(400, "'prompt' is empty", param="prompt")
    if not 0 <= min(ids) <= max(ids) < limits.vocab_size:
        raise ApiError(400, f"token ids must be from 0 to {limits.vocab_size - 1}", param="prompt")
    return ids


def is_token_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def parse_messages(messages: Any) -> list[dict[str, Any]]:
    """Messages with their content as one string."""
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "'messages' must be a list with at least one message", param="messages")
    parsed = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise ApiError(400, "every message needs a 'role'", param="messages")
        text = content_text(message.get("content"), param="messages", what="a message's 'content'")
        parsed.append({**message, "content": text})
    return parsed


def content_text(content: Any, *, param: str, what: str) -> str:
    """A string, or text parts put together; "" for none."""
    if content is None or isinstance(content, str):
        return check_text(content or "", param=param)
    is_text = isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str) for part in content
    )
    if not is_text:
        raise ApiError(400, f"{what} must be a string or a list of text parts", param=param)
    return check_text("".join(part["text"] for part in content), param=param)


def check_text(text: str, *, param: str) -> str:
    """The same text. JSON can carry half of a surrogate pair, which is no text: ApiError."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ApiError(400, f"'{param}' is not valid Unicode: {error.reason}", param=param) from error
    return text
