"""Replies under a JSON Schema: what its grammar allows at each token, and whether the finished text is valid.

The contract of `response_format` (docs/workloads.md): the text is what masked greedy decoding writes, token by token,
under the grammar that llguidance makes of the schema with `WHITESPACE` between JSON tokens. Where the grammar leaves
one text only, any split of that text into tokens is right: a runtime may write it without asking the model
(jump-forward).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from vibeserve.contract import Finding, Request
from vibeserve.core.nouns import PromptRequest, Reply
from vibeserve.errors import SpecError
from vibeserve.modalities.text.wire import response_format_of

if TYPE_CHECKING:
    import llguidance
    import torch

WHITESPACE = r" |\n {0,8}"
"""between JSON tokens, as every runtime has it: bounded, because small models otherwise emit white space for ever"""


def schema_of(request: Request) -> Mapping[str, Any] | None:
    """The schema that a reply to `request` has to be valid for; None where there is none.

    SpecError for a `response_format` of another kind than `json_schema`.
    """
    form = response_format_of(cast(PromptRequest, request))
    if form is None:
        return None
    if form.get("type") != "json_schema":
        raise SpecError(
            f"request '{request.request_id}': response_format.type is '{form.get('type')}'",
            problems=["valid in a workload: json_schema"],
        )
    schema: Mapping[str, Any] = form["json_schema"]["schema"]
    return schema


class Grammars:
    """Grammars over one tokenizer. `tokenizer` is the text of a tokenizer.json."""

    def __init__(self, tokenizer: str, *, vocab_size: int, end_ids: Sequence[int]) -> None:
        import llguidance

        self._tokens = llguidance.LLTokenizer(tokenizer, n_vocab=vocab_size, eos_token=list(end_ids) or None)
        self._end_ids = frozenset(end_ids)

    def replay(self, schema: Mapping[str, Any]) -> Replay:
        """At the beginning of a document. SpecError for a schema that llguidance cannot hold a reply to."""
        import llguidance

        try:
            grammar = _grammar(json.dumps(schema))
            problem = llguidance.LLMatcher.validate_grammar(grammar, self._tokens)
        except ValueError as error:
            problem = str(error)
        if problem:
            raise SpecError(f"a schema of the workload cannot be enforced: {problem}")
        return Replay(llguidance.LLMatcher(self._tokens, grammar), self._tokens, end_ids=self._end_ids)


@lru_cache(maxsize=1024)
def _grammar(schema: str) -> str:
    import llguidance

    grammar: str = llguidance.LLMatcher.grammar_from_json_schema(schema, overrides={"whitespace_pattern": WHITESPACE})
    return grammar


class Replay:
    """The grammar along one reply."""

    def __init__(
        self, matcher: llguidance.LLMatcher, tokens: llguidance.LLTokenizer, *, end_ids: Collection[int]
    ) -> None:
        self._matcher = matcher
        self._tokens = tokens
        self._end_ids = end_ids

    @property
    def is_complete(self) -> bool:
        """Nothing but an end token may follow."""
        stopped: bool = self._matcher.is_stopped()
        return stopped

    def mask(self, logits: torch.Tensor) -> None:
        """Set the logits [vocab] of what the grammar forbids here to -inf, in place."""
        import numpy as np
        import torch

        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        allowed = np.unpackbits(bits, bitorder="little")[: logits.shape[-1]]
        logits.masked_fill_(torch.from_numpy(allowed == 0).to(logits.device), float("-inf"))

    def is_forced(self, token_id: int) -> bool:
        """Whether the token writes nothing but text that the grammar leaves no choice about."""
        if self.is_complete:
            return False
        text: bytes = self._tokens.decode_bytes([token_id])
        forced: bytes = self._matcher.compute_ff_bytes()
        return bool(text) and forced.startswith(text)

    def accept(self, token_id: int) -> bool:
        """Go on by a token; False, and no further, where the grammar forbids it."""
        if self.is_complete:
            return token_id in self._end_ids
        return bool(self._matcher.try_consume_tokens([token_id]) == 1)


def schema_findings(replies: Sequence[Reply]) -> Iterator[Finding]:
    """Finished replies that are no JSON, or not valid for their schema. A reply that its length cut is no document."""
    asked = [(reply, schema) for reply in replies if (schema := schema_of(reply.request)) is not None]
    ended = [(reply, schema) for reply, schema in asked if reply.error is None and reply.finish_reason == "stop"]
    found = [text for reply, schema in ended if (text := _invalid(reply, schema))]
    if found:
        text = f"{found[0]} ({len(found)} of {len(ended)} finished replies)"
        yield Finding(gate="schema", reason_class="schema_violated", text=text)


def _invalid(reply: Reply, schema: Mapping[str, Any]) -> str:
    name = reply.request.request_id
    try:
        document = json.loads(reply.text)
    except ValueError:
        return f"{name}: {len(reply.text)} characters that are no JSON"
    error = next(iter(_validator(json.dumps(schema)).iter_errors(document)), None)
    if error is None:
        return ""
    where = "/".join(map(str, error.absolute_path)) or "the document"
    return f"{name}: {where} breaks '{error.validator}' of its schema"


@lru_cache(maxsize=1024)
def _validator(schema: str) -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(schema))
