"""Text <-> token ids: the model's tokenizer, its chat template, and incremental text for streams."""

from __future__ import annotations

import json
from collections.abc import Sequence as Items
from datetime import datetime
from pathlib import Path
from typing import Any

import tokenizers
from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .weights import WEIGHTS_DIR

REPLACEMENT = "\ufffd"
"""what decoding puts in place of bytes that are not (yet) valid UTF-8"""


class Tokenizer:
    """See `interfaces.TokenizerLike`."""

    def __init__(self, model_dir: Path) -> None:
        folder = model_dir / WEIGHTS_DIR
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        path = folder / "tokenizer_config.json"
        self._config: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        self._template = chat_template(folder, self._config)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text).ids
        return ids

    def encode_continuation(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, token_ids: Items[int]) -> str:
        text: str = self._tokenizer.decode(list(token_ids))
        return text

    def token_text(self, token_id: int) -> str:
        text: str = self._tokenizer.decode([token_id], skip_special_tokens=False)
        return text

    def render_chat(self, messages: list[dict[str, Any]]) -> list[int]:
        if self._template is None:
            raise ValueError("this model has no chat template; use /v1/completions")
        special = {
            name: token.get("content") if isinstance(token, dict) else token
            for name, token in self._config.items()
            if name.endswith("_token")
        }
        try:
            text = self._template.render(messages=messages, add_generation_prompt=True, **special)
        except TemplateError as error:
            raise ValueError(f"the chat template refuses the messages: {error}") from error
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def detokenizer(self, stop: tuple[str, ...]) -> StreamDetokenizer:
        return StreamDetokenizer(self, stop)


class StreamDetokenizer:
    """See `interfaces.Detokenizer`.

    Decodes a short window twice, without and with the new token, and keeps the difference, so that decoders whose text
    of a token depends on its neighbours come out right. The window starts with the tokens of the last released text.
    """

    def __init__(self, tokenizer: Tokenizer, stop: tuple[str, ...]) -> None:
        self._tokenizer = tokenizer
        self._stop = stop
        self._token_ids: list[int] = []
        self._window_start = 0
        self._num_read = 0
        self._num_decoded_chars = 0
        self._held = ""
        self.is_stopped = False

    def add(self, token_id: int) -> str:
        self._token_ids.append(token_id)
        before = self._tokenizer.decode(self._token_ids[self._window_start : self._num_read])
        text = self._tokenizer.decode(self._token_ids[self._window_start :])
        if len(text) <= len(before) or text.endswith(REPLACEMENT):
            return ""
        self._window_start, self._num_read = self._num_read, len(self._token_ids)
        self._num_decoded_chars += len(text) - len(before)
        return self._release(text[len(before) :])

    def flush(self) -> str:
        rest = self._tokenizer.decode(self._token_ids)[self._num_decoded_chars :]
        self._num_decoded_chars += len(rest)
        text = self._release(rest) + self._held
        self._held = ""
        return text

    def _release(self, text: str) -> str:
        """Text up to the first stop string; what may be the start of one is held."""
        if self.is_stopped or not self._stop:
            return "" if self.is_stopped else text
        text = self._held + text
        found = [index for index in map(text.find, self._stop) if index >= 0]
        if found:
            self.is_stopped, self._held = True, ""
            return text[: min(found)]
        num_held = max(num_overlapping(text, stop) for stop in self._stop)
        self._held = text[len(text) - num_held :]
        return text[: len(text) - num_held]


def num_overlapping(text: str, stop: str) -> int:
    """Length of the longest suffix of `text` that `stop` starts with."""
    return next((size for size in range(min(len(text), len(stop) - 1), 0, -1) if text.endswith(stop[:size])), 0)


def chat_template(folder: Path, config: dict[str, Any]) -> Any | None:
    """Compiled chat template of `chat_template.jinja` or of `tokenizer_config.json`; None where there is none."""
    path = folder / "chat_template.jinja"
    source = path.read_text(encoding="utf-8") if path.is_file() else config.get("chat_template")
    if source is None:
        return None
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment.from_string(source)


def _raise_exception(message: str) -> None:
    raise TemplateError(message)
