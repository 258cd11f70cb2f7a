"""What the tests of `vibeserve init` share: the command line in this process, and small models' configurations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vibeserve.cli.main import main

BERT: dict[str, Any] = {
    "model_type": "bert", "architectures": ["BertModel"], "hidden_size": 32, "intermediate_size": 64,
    "num_attention_heads": 2, "num_hidden_layers": 2, "max_position_embeddings": 64,
}  # fmt: skip
MAMBA2: dict[str, Any] = {
    "model_type": "mamba2", "architectures": ["Mamba2ForCausalLM"], "hidden_size": 64, "num_heads": 8, "head_dim": 16,
    "state_size": 16, "n_groups": 1, "num_hidden_layers": 2, "chunk_size": 64, "vocab_size": 1024,
}  # fmt: skip

MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
]

ModelFolder = Callable[..., Path]


class Command:
    """The command line inside the test's process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *argv: str, code: int = 0) -> str:
        """What it printed; of a failure what it said on stderr."""
        self._capsys.readouterr()
        found = main([*argv])
        out = self._capsys.readouterr()
        assert found == code, out.err + out.out
        return out.err if code else out.out

    def document(self, *argv: str) -> Any:
        return json.loads(self(*argv, "--json"))


def pooling_flags(mode: str) -> dict[str, Any]:
    return {"word_embedding_dimension": 32, f"pooling_mode_{mode}": True, "pooling_mode_max_tokens": False}
