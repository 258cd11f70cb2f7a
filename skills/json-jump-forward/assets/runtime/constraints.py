"""Grammar-constrained sampling that guesses what the grammar leaves little choice about: names and what joins them."""

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
from .json_text import JOINTS, Joints, JsonText, Place, is_joint
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

    @cached_property
    def _joints(self) -> dict[Place, list[int]]:
        """The usual ones that are one token."""
        encoded = {place: [self._tokens.tokenize_str(text) for text in texts] for place, texts in JOINTS.items()}
        return {place: [ids[0] for ids in found if len(ids) == 1] for place, found in encoded.items()}

    def _constraint(self, schema: dict[str, Any]) -> GrammarConstraint:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(
            json.dumps(schema), overrides={"whitespace_pattern": WHITESPACE}
        )
        problem = llguidance.LLMatcher.validate_grammar(grammar, self._tokens)
        if problem:
            raise ValueError(f"response_format: the schema cannot be enforced: {problem}")
        matcher = llguidance.LLMatcher(self._tokens, grammar)
        return GrammarConstraint(matcher, self._tokens, joints=Joints(self._joints))


class GrammarConstraint:
    """See `interfaces.Constraint`. Between `draft` and the step's last row, rows are masked and accepted in order.

    Row 0 holds the last known token, row k the k-th guess. A sampler may mask all rows before it accepts any, or go row
    by row: `mask` runs ahead along the guesses, `accept` goes back where one was wrong, and leaves out what follows it.
    """

    def __init__(self, matcher: llguidance.LLMatcher, tokens: llguidance.LLTokenizer, *, joints: Joints) -> None:
        self._matcher = matcher
        self._tokens = tokens
        self._joints = joints
        self._text = JsonText()
        self._guesses: list[int] = []
        self._start_step()

    def draft(self, max_tokens: int) -> list[int]:
        """At most so many guesses at the next tokens, each of which the grammar allows after those before it."""
        guesses: list[int] = []
        text = self._text.copied()
        while len(guesses) < max_tokens and not self._matcher.is_stopped():
            found = self._next_guesses(text)[: max_tokens - len(guesses)]
            num_allowed = self._matcher.try_consume_tokens(found) if found else 0
            guesses += found[:num_allowed]
            text.add(self._tokens.decode_bytes(found[:num_allowed]))
            if not found or num_allowed < len(found):
                break
        if guesses and self._matcher.is_stopped():
            # the token that completes a document ends the sequence: there is no row behind it
            self._matcher.rollback(1)
            guesses.pop()
        if guesses:
            self._matcher.rollback(len(guesses))
        self._guesses = guesses
        self._start_step()
        return list(guesses)

    def mask(self, logits: Tensor) -> None:
        row = self._num_masked
        self._num_masked += 1
        if self._is_off:
            return
        while self._num_ahead < row:
            self._matcher.consume_token(self._guesses[self._num_ahead])
            self._num_ahead += 1
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        allowed = np.unpackbits(bits, bitorder="little")[: logits.shape[-1]]
        logits.masked_fill_(torch.from_numpy(allowed == 0), float("-inf"))

    def accept(self, token_id: int) -> None:
        """A grammar that exceeds the parser's limits ends its sequence; `mask` then allows the end token only."""
        row = self._num_accepted
        self._num_accepted += 1
        if not self._is_off:
            self._go_on(token_id, row)
        if self._num_accepted > len(self._guesses):
            self._guesses = []
            self._start_step()

    @property
    def is_complete(self) -> bool:
        stopped: bool = self._matcher.is_stopped()
        return stopped

    def _go_on(self, token_id: int, row: int) -> None:
        is_guessed = row < len(self._guesses) and token_id == self._guesses[row]
        self._is_off = row < len(self._guesses) and not is_guessed
        self._note(token_id)
        if is_guessed and self._num_ahead > row:
            return  # `mask` was here before
        if self._num_ahead > row:
            self._matcher.rollback(self._num_ahead - row)
        self._matcher.consume_token(token_id)
        self._num_ahead = row + 1
        if self._matcher.is_error():
            logger.warning("constraint failed: %s", self._matcher.get_error())

    def _start_step(self) -> None:
        self._num_masked = self._num_accepted = self._num_ahead = 0
        self._is_off = False

    def _next_guesses(self, text: JsonText) -> list[int]:
        """Tokens of the text that is forced here, and the joint behind it, as far as one can be told."""
        forced: bytes = self._matcher.compute_ff_bytes()
        ids: list[int] = self._matcher.compute_ff_tokens() if forced else []
        spelled = self._tokens.decode_bytes(ids) if ids else b""
        behind = text.copied()
        behind.add(spelled)
        if behind.in_string and forced[len(spelled) :] != b'"':
            return ids  # what a text says is the model's to choose
        for token_id in self._joints.candidates(behind.place):
            if self._matcher.validate_tokens([*ids, token_id]) == len(ids) + 1:
                return [*ids, token_id]
        return ids

    def _note(self, token_id: int) -> None:
        text: bytes = self._tokens.decode_bytes([token_id])
        if is_joint(text) and (b'"' in text or not self._text.in_string):
            self._joints.note(self._text.place, token_id)
        self._text.add(text)
