"""Grammar-constrained sampling: JSON and JSON Schema through llguidance token masks."""

from __future__ import annotations

import json
import logging
from functools import cached_property
from pathlib import Path
from typing import Any

import llguidance
import numpy as np
import torch
from torch import Tensor

from .interfaces import ModelConfig
from .weights import WEIGHTS_DIR

WHITESPACE = r" |\n {0,8}"
"""between JSON tokens: bounded, because small models otherwise emit white space for ever"""

logger = logging.getLogger(__name__)


class ConstraintCompiler:
    """See `interfaces.ConstraintCompilerLike`."""

    def __init__(self, model_dir: Path, config: ModelConfig) -> None:
        self._path = model_dir / WEIGHTS_DIR / "tokenizer.json"
        self._config = config

    def compile(self, response_format: dict[str, Any]) -> GrammarConstraint | None:
        kind = response_format.get("type")
        if kind == "text":
            return None
        if kind == "json_object":
            return self._constraint({"type": "object"})
        if kind == "json_schema":
            declared = response_format.get("json_schema")
            schema = declared.get("schema") if isinstance(declared, dict) else None
            if not isinstance(schema, dict):
                raise ValueError("response_format.json_schema.schema must be a JSON Schema object")
            return self._constraint(schema)
        raise ValueError(f"response_format.type {kind!r} is not supported; supported: text, json_object, json_schema")

    @cached_property
    def _tokens(self) -> llguidance.LLTokenizer:
        return llguidance.LLTokenizer(
            self._path.read_text(encoding="utf-8"),
            n_vocab=self._config.vocab_size,
            eos_token=list(self._config.eos_token_ids) or None,
        )

    def _constraint(self, schema: dict[str, Any]) -> GrammarConstraint:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(
            json.dumps(schema), overrides={"whitespace_pattern": WHITESPACE}
        )
        problem = llguidance.LLMatcher.validate_grammar(grammar, self._tokens)
        if problem:
            raise ValueError(f"response_format: the schema cannot be enforced: {problem}")
        return GrammarConstraint(llguidance.LLMatcher(self._tokens, grammar))


class GrammarConstraint:
    """See `interfaces.Constraint`."""

    def __init__(self, matcher: llguidance.LLMatcher) -> None:
        self._matcher = matcher

    def mask(self, logits: Tensor) -> None:
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        allowed = np.unpackbits(bits, bitorder="little")[: logits.shape[-1]]
        logits.masked_fill_(torch.from_numpy(allowed == 0), float("-inf"))

    def accept(self, token_id: int) -> None:
        """A grammar that exceeds the parser's limits ends its sequence; `mask` then allows the end token only."""
        self._matcher.consume_token(token_id)
        if self._matcher.is_error():
            logger.warning("constraint failed: %s", self._matcher.get_error())

    @property
    def is_complete(self) -> bool:
        stopped: bool = self._matcher.is_stopped()
        return stopped
