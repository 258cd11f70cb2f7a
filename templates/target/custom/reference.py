"""What is right. The example's function: the share of each letter of the alphabet in a text.

Put your own model here: `load` reads it from a folder, `run` answers one request in plain, obviously correct code.
"""

from __future__ import annotations

import json
from pathlib import Path

from vibeserve.contract import Request


class Reference:
    """What the judge compares with. Speed does not matter here."""

    def __init__(self, alphabet: str, *, dtype: str) -> None:
        self._alphabet = alphabet
        self._dtype = dtype

    def run(self, request: Request) -> list[float]:
        """The right answer to `request`, as JSON data of the shape that a record's output has."""
        return self.shares(request.payload["input"])

    def shares(self, text: str) -> list[float]:
        """One number per letter of the alphabet; they add up to 1. Case and other characters do not matter."""
        import torch

        counts = [text.lower().count(letter) for letter in self._alphabet]
        # a letterless text has only zeros
        shares = torch.tensor(counts, dtype=getattr(torch, self._dtype)) / max(1, sum(counts))
        found: list[float] = shares.float().tolist()
        return found


def load(path: str, device: str, dtype: str) -> Reference:
    """The model in folder `path`, a copy of the folder that `model.source` in target.yaml names.

    `dtype` is float32 for what is right, bfloat16 for honest noise. The example has no use for `device`.
    """
    config = json.loads((Path(path) / "config.json").read_text(encoding="utf-8"))
    return Reference(config["alphabet"], dtype=dtype)
