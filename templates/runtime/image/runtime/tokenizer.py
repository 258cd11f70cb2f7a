"""Text -> token ids: the model's tokenizer."""

from __future__ import annotations

from pathlib import Path

import tokenizers

from .weights import WEIGHTS_DIR


class Tokenizer:
    """See `interfaces.TokenizerLike`."""

    def __init__(self, model_dir: Path) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_file(str(model_dir / WEIGHTS_DIR / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()

    def encode(self, text: str, /) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids
