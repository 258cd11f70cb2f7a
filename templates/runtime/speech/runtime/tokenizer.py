"""Token ids -> text: the model's tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tokenizers

from .weights import WEIGHTS_DIR


class Tokenizer:
    """See `interfaces.TokenizerLike`."""

    def __init__(self, model_dir: Path) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_file(str(model_dir / WEIGHTS_DIR / "tokenizer.json"))

    def decode(self, token_ids: Sequence[int], /) -> str:
        text: str = self._tokenizer.decode(list(token_ids), skip_special_tokens=True)
        return text
