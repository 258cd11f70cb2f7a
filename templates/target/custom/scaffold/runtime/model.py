"""The model: what reference.py computes, one request at a time. Right and slow: the search starts from here."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from .interfaces import Request


class Model:
    """See `interfaces.ModelLike`."""

    def __init__(self, alphabet: str, *, dtype: torch.dtype) -> None:
        self._alphabet = alphabet
        self._dtype = dtype

    def run(self, request: Request) -> list[float]:
        """The share of each letter of the alphabet in the text."""
        text: str = request.payload
        counts = [text.lower().count(letter) for letter in self._alphabet]
        shares = torch.tensor(counts, dtype=self._dtype) / max(1, sum(counts))
        found: list[float] = shares.float().tolist()
        return found


def load(path: str, device: str, dtype: str) -> Model:
    """The model in folder `path`. The example has no use for `device`."""
    config = json.loads((Path(path) / "config.json").read_text(encoding="utf-8"))
    return Model(config["alphabet"], dtype=getattr(torch, dtype))
