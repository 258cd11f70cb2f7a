"""The API's reply objects, streamed and whole, for completions and chat."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .interfaces import Output, SampledToken, TokenizerLike
from .protocol import Generation
from .tokenizer import REPLACEMENT


@dataclass(kw_only=True)
class Choice:
    """What has arrived of one choice."""

    text: str = ""
    tokens: list[SampledToken] = field(default_factory=list)
    finish_reason: str | None = None
    num_accepted_prediction_tokens: int = 0


class Reply:
    """State and shapes of the reply to one request. `add` takes the outputs in order."""

    def __init__(self, generation: Generation, *, model_name: str, tokenizer: TokenizerLike) -> None:
        self.generation = generation
        self.tokenizer = tokenizer
        self.choices = [Choice() for _ in range(generation.num_choices)]
        kind = "chat.completion" if generation.is_chat else "text_completion"
        prefix = "chatcmpl" if generation.is_chat else "cmpl"
        self.head = {
            "id": f"{prefix}-{uuid.uuid4().hex}",
            "object": kind + ".chunk" * (generation.is_chat and generation.is_streamed),
            "created": int(time.time()),
            "model": model_name,
        }

    @property
    def is_finished(self) -> bool:
        return all(choice.finish_reason is not None for choice in self.choices)

    @property
    def has_failed(self) -> bool:
        return any(choice.finish_reason == "error" for choice in self.choices)

    @property
    def num_completion_tokens(self) -> int:
        return sum(len(choice.tokens) for choice in self.choices)

    def add(self, output: Output) -> None:
        choice = self.choices[output.index]
        choice.text += output.text
        choice.tokens.extend(output.tokens)
        choice.finish_reason = output.finish_reason
        choice.num_accepted_prediction_tokens = output.num_accepted_prediction_tokens

    def opening_events(self) -> Iterator[str]:
        """Events before the first token: the assistant's role in a chat, once a choice."""
        for index in range(len(self.choices) if self.generation.is_chat else 0):
            delta = {"role": "assistant", "content": ""}
            yield self._event([{"index": index, "delta": delta, "finish_reason": None}])

    def token_event(self, output: Output) -> str:
        """Event of one output; call before `add`."""
        is_first = not self.choices[output.index].tokens
        offset = len(self.choices[output.index].text)
        choice: dict[str, Any] = {"index": output.index}
        if self.generation.is_chat:
            choice["delta"] = {"content": output.text}
        else:
            choice["text"] = output.text
        choice["logprobs"] = self._logprobs(output.tokens, offset)
        choice["finish_reason"] = output.finish_reason
        if self.generation.wants_token_ids:
            choice["token_ids"] = [token.token_id for token in output.tokens]
            if is_first:
                choice["prompt_token_ids"] = list(self.generation.prompt_of(output.index))
        return self._event([choice])

    def closing_events(self) -> Iterator[str]:
        if self.generation.wants_usage:
            yield self._event([], usage=self.usage())
        yield "data: [DONE]\n\n"

    def body(self) -> dict[str, Any]:
        """The whole reply of a request that is not streamed."""
        choices = [self._choice(index) for index in range(len(self.choices))]
        return {**self.head, "choices": choices, "usage": self.usage()}

    def usage(self) -> dict[str, Any]:
        num_prompt = sum(map(len, self.generation.prompts))
        return {
            "prompt_tokens": num_prompt,
            "completion_tokens": self.num_completion_tokens,
            "total_tokens": num_prompt + self.num_completion_tokens,
            "completion_tokens_details": self._prediction_usage(),
        }

    def _prediction_usage(self) -> dict[str, int]:
        """Predicted tokens that are in the completion, and all others, as the API counts them.

        Unlike there, `completion_tokens` are those of the completion alone.
        """
        num_accepted = sum(choice.num_accepted_prediction_tokens for choice in self.choices)
        num_rejected = len(self.generation.prediction) - num_accepted
        return {"accepted_prediction_tokens": num_accepted, "rejected_prediction_tokens": num_rejected}

    def _choice(self, index: int) -> dict[str, Any]:
        state = self.choices[index]
        choice: dict[str, Any] = {"index": index}
        if self.generation.is_chat:
            choice["message"] = {"role": "assistant", "content": state.text}
        else:
            choice["text"] = state.text
        choice["logprobs"] = self._logprobs(tuple(state.tokens), 0)
        choice["finish_reason"] = state.finish_reason
        if self.generation.wants_token_ids:
            choice["token_ids"] = [token.token_id for token in state.tokens]
            choice["prompt_token_ids"] = list(self.generation.prompt_of(index))
        return choice

    def _event(self, choices: list[dict[str, Any]], *, usage: dict[str, Any] | None = None) -> str:
        data: dict[str, Any] = {**self.head, "choices": choices}
        if usage is not None:
            data["usage"] = usage
        return f"data: {json.dumps(data, ensure_ascii=False, separators=(',', ':'))}\n\n"

    def _logprobs(self, tokens: tuple[SampledToken, ...], offset: int) -> dict[str, Any] | None:
        if self.generation.params.num_logprobs is None:
            return None
        return self._chat_logprobs(tokens) if self.generation.is_chat else self._completion_logprobs(tokens, offset)

    def _completion_logprobs(self, tokens: tuple[SampledToken, ...], offset: int) -> dict[str, Any]:
        texts = [self.tokenizer.token_text(token.token_id) for token in tokens]
        offsets = [offset + sum(map(len, texts[:index])) for index in range(len(texts))]
        return {
            "tokens": texts,
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [
                {self.tokenizer.token_text(token_id): logprob for token_id, logprob in token.top_logprobs}
                for token in tokens
            ],
            "text_offset": offsets,
        }

    def _chat_logprobs(self, tokens: tuple[SampledToken, ...]) -> dict[str, Any]:
        return {
            "content": [
                {
                    **self._token_logprob(token.token_id, token.logprob),
                    "top_logprobs": [self._token_logprob(*top) for top in token.top_logprobs],
                }
                for token in tokens
            ]
        }

    def _token_logprob(self, token_id: int, logprob: float | None) -> dict[str, Any]:
        """Bytes are null for a token that is no whole UTF-8 text by itself."""
        text = self.tokenizer.token_text(token_id)
        return {"token": text, "logprob": logprob, "bytes": None if REPLACEMENT in text else list(text.encode())}
