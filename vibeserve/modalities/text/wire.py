"""Text on the wire: request -> JSON body by the server's dialect, streamed events -> a reply.

Every dialect asks for the same thing: greedy decoding, streamed, of exactly `max_tokens` tokens unless the request lets
EOS end it. EOS is *ignored*, not masked, wherever the server can do so, hence the reply may hold EOS ids that its text
does not show. No identifier of the request is sent: a request id would name the pool and the seed.

- `vllm`: ours and vLLM. `ignore_eos` and `return_token_ids` are vLLM's extensions of the completions API.
- `transformers`: `transformers serve` (read in 5.24). Unknown fields answer 422, so the length is fixed through its
  `generation_config` string, which *replaces* the model's generation config. `eos_token_id: -1` disables EOS in both of
  its engines: without it the serial one takes the model's EOS, and the continuous one that of whichever request came
  first. The model's name is the folder that the server was started with.
- `llama_cpp`: llama-server. EOS is masked there by a logit bias, prompts are never reused (`cache_prompt`).

A `response_format` of the request's payload is sent as it is (`vllm`) or as its schema (`llama_cpp`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from vibeserve.contract import SendError
from vibeserve.core.nouns import Chunk, PromptRequest, Reply, Usage
from vibeserve.errors import SpecError

COMPLETIONS_PATH = "/v1/completions"
RESPONSE_FORMAT = "response_format"


@dataclass(slots=True, kw_only=True)
class Event:
    """The facts of one streamed event. A field that the event did not hold is empty."""

    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    finish_reason: str | None = None
    usage: Usage | None = None
    """as the server claims it"""
    error: str | None = None


class Collected:
    """What one streamed reply has brought so far. A `data:` line is an event, as our servers and peers write them."""

    def __init__(self) -> None:
        self.is_done = False
        """[DONE] was seen"""
        self._chunks: list[Chunk] = []
        self._logprobs: list[float] = []
        self._finish_reason: str | None = None
        self._usage: Usage | None = None

    def read(self, at_s: float, line: bytes) -> None:
        """One line of the event stream. SendError for a malformed event or one that reports an error."""
        if not line.startswith(b"data:"):
            return
        data = line[5:].strip()
        if data == b"[DONE]":
            self.is_done = True
            return
        try:
            event = parse_event(data.decode())
        except ValueError as error:
            raise SendError(f"malformed event: {error}") from error
        if event.error is not None:
            raise SendError(f"error event: {event.error}")
        if event.text or event.token_ids:
            self._chunks.append(Chunk(at_s, event.text, event.token_ids))
        self._logprobs.extend(event.logprobs)
        self._finish_reason = event.finish_reason or self._finish_reason
        self._usage = event.usage or self._usage

    def reply(self, request: PromptRequest, *, error: str | None = None) -> Reply:
        """The reply as far as it came."""
        return Reply(
            request=request,
            chunks=tuple(self._chunks),
            finish_reason=self._finish_reason,
            usage=self._usage,
            token_logprobs=tuple(self._logprobs),
            error=error,
        )


def parse_event(data: str) -> Event:
    """Read the JSON of one `data:` line. Raises ValueError for anything that is not a completions event."""
    try:
        document = json.loads(data)
        return _event_of(document)
    except (TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise ValueError(f"not a completions event ({type(error).__name__})") from error


def _event_of(document: Mapping[str, Any]) -> Event:
    if document.get("error") is not None:
        return Event(error=str(document["error"])[:500])
    usage = _usage_of(document.get("usage"))
    choices = document.get("choices") or ()
    if not choices:
        return Event(usage=usage)
    choice = choices[0]
    text = choice.get("text") or ""
    if not isinstance(text, str):
        raise TypeError("text is not a string")
    text.encode()  # a lone surrogate is no text; UnicodeEncodeError is a ValueError
    finish = choice.get("finish_reason")
    return Event(
        text=text,
        token_ids=_ids_of(choice.get("token_ids")),
        logprobs=_logprobs_of(choice.get("logprobs")),
        finish_reason=None if finish is None else str(finish),
        usage=usage,
    )


def _ids_of(value: Any) -> tuple[int, ...]:
    ids = tuple(value or ())
    if not all(type(token) is int and token >= 0 for token in ids):
        raise TypeError("token_ids are not token ids")
    return ids


def _usage_of(value: Any) -> Usage | None:
    if value is None:
        return None
    details = value.get("completion_tokens_details") or {}
    usage = Usage(
        prompt_tokens=value["prompt_tokens"],
        completion_tokens=value["completion_tokens"],
        accepted_prediction_tokens=details.get("accepted_prediction_tokens"),
        rejected_prediction_tokens=details.get("rejected_prediction_tokens"),
    )
    claimed = [usage.accepted_prediction_tokens, usage.rejected_prediction_tokens]
    counts = [usage.prompt_tokens, usage.completion_tokens, *(count for count in claimed if count is not None)]
    if not all(type(count) is int for count in counts):
        raise TypeError("usage is not made of counts")
    return usage


def _logprobs_of(value: Any) -> tuple[float, ...]:
    """Both shapes in use: `token_logprobs` (OpenAI completions, vLLM) and `content` (chat, llama-server)."""
    if not value:
        return ()
    if value.get("content") is not None:
        return tuple(float(item["logprob"]) for item in value["content"])
    return tuple(float("nan") if item is None else float(item) for item in value.get("token_logprobs") or ())


def _vllm_body(request: PromptRequest, model: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "prompt": request.prompt,
        "max_tokens": request.max_tokens,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": request.ignore_eos,
        "return_token_ids": True,
    }
    if isinstance(request.payload, dict) and "prediction" in request.payload:
        body["prediction"] = request.payload["prediction"]
    form = response_format_of(request)
    return body | _logprobs_and_stop(request) | ({} if form is None else {RESPONSE_FORMAT: form})


def _transformers_body(request: PromptRequest, model: str) -> dict[str, Any]:
    if response_format_of(request) is not None:
        raise SpecError(
            "dialect 'transformers' cannot send a response_format: `transformers serve` constrains nothing",
            problems=["baselines that can: vllm, llama_cpp"],
        )
    body: dict[str, Any] = {"model": model, "prompt": request.prompt, "stream": True, "max_tokens": request.max_tokens}
    if request.ignore_eos:
        fixed_length = {
            "do_sample": False,
            "max_new_tokens": request.max_tokens,
            "min_new_tokens": request.max_tokens,
            "eos_token_id": -1,
        }
        body["generation_config"] = json.dumps(fixed_length)
    else:
        body["temperature"] = 0.0
    if request.stop:
        body["stop"] = list(request.stop)
    return body


def _llama_cpp_body(request: PromptRequest, model: str) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": model,
        "prompt": request.prompt,
        "max_tokens": request.max_tokens,
        "n_predict": request.max_tokens,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": request.ignore_eos,
        "cache_prompt": False,
    }
    form = response_format_of(request)
    schema = {} if form is None else {"json_schema": form["json_schema"]["schema"]}
    return body | _logprobs_and_stop(request) | schema


def response_format_of(request: PromptRequest) -> dict[str, Any] | None:
    """The OpenAI API's `response_format` of a request; None where its text is free."""
    payload = request.payload
    return payload.get(RESPONSE_FORMAT) if isinstance(payload, dict) else None


def _logprobs_and_stop(request: PromptRequest) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    if request.logprobs > 0:
        extra["logprobs"] = request.logprobs
    if request.stop:
        extra["stop"] = list(request.stop)
    return extra


DIALECTS: dict[str, Callable[[PromptRequest, str], dict[str, Any]]] = {
    "vllm": _vllm_body,
    "transformers": _transformers_body,
    "llama_cpp": _llama_cpp_body,
}
"""dialect -> (request, model name) -> JSON body of POST /v1/completions"""


def body_of(dialect: str, request: PromptRequest, *, model: str) -> dict[str, Any]:
    """JSON body of the request; SpecError lists the known dialects."""
    if dialect not in DIALECTS:
        raise SpecError(f"unknown dialect '{dialect}'", problems=[f"valid: {', '.join(sorted(DIALECTS))}"])
    return DIALECTS[dialect](request, model)
