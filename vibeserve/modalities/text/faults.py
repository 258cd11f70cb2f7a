"""Planted faults of text: what a cheating or broken server would send, which must be refused, and bf16, which must not.

`tests/accuracy/test_faults.py` holds those that need another model (perturbed layers, narrow formats, a wrong RoPE).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from vibeserve.contract import Context, Fault, References, Request
from vibeserve.core.nouns import PromptRequest
from vibeserve.weights import load_tokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TRIAL_TOKENS = 48
"""of one reply: rounding flips tokens near its beginning, where many would do, so that long replies are fairer to it"""
TRIAL_PROMPT_TOKENS = 48
"""of one prompt: the faults are about the check, and long prompts cost minutes on a CPU"""
REPLACED_EVERY = 8
INVENTED_LOGPROB = -0.5


def configure(context: Context) -> TextFaults:
    return TextFaults(context)


class TextFaults:
    """See `contract.FaultsModule`."""

    def __init__(self, context: Context) -> None:
        self._model_dir = Path(context.model_dir)

    @property
    def FAULTS(self) -> Sequence[Fault]:
        return (
            Fault(name="another_prompts_text", is_wrong=True, make=self._another_prompts_text),
            Fault(name="one_token_in_eight_replaced", is_wrong=True, make=self._replaced),
            Fault(name="repeated_token", is_wrong=True, make=self._repeated),
            Fault(name="text_that_no_model_wrote", is_wrong=True, make=self._pool_text),
            Fault(name="invented_logprobs", is_wrong=True, make=self._invented_logprobs),
            Fault(name="bfloat16", is_wrong=False, make=self._bfloat16),
        )

    def shortened(self, request: Request) -> Request:
        """The prompt's beginning and its end, and a short reply. Its own part may be either: a nonce at the beginning,
        or the last tokens behind a shared prefix."""
        asked = cast(PromptRequest, request)
        ids = self._tokenizer.encode(asked.prompt).ids
        if len(ids) > TRIAL_PROMPT_TOKENS:
            ids = ids[: TRIAL_PROMPT_TOKENS // 2] + ids[-TRIAL_PROMPT_TOKENS // 2 :]
        prompt = self._tokenizer.decode(ids)
        return replace(
            asked, prompt=prompt, num_prompt_tokens=len(self._tokenizer.encode(prompt).ids),
            max_tokens=min(TRIAL_TOKENS, asked.max_tokens),
        )  # fmt: skip

    def _bfloat16(self, references: References, request: Request, other: Request) -> Any:
        return references.rounded().run(request)

    def _another_prompts_text(self, references: References, request: Request, other: Request) -> Any:
        """A stale reply."""
        asked = cast(PromptRequest, request)
        return references.exact().run(replace(cast(PromptRequest, other), max_tokens=asked.max_tokens))

    def _replaced(self, references: References, request: Request, other: Request) -> Any:
        """Every eighth token is one that would fit elsewhere."""
        right = references.exact().run(request)
        ids = list(right["token_ids"])
        source = self._tokenizer.encode(cast(PromptRequest, other).prompt).ids
        for place in range(REPLACED_EVERY - 1, len(ids), REPLACED_EVERY):
            ids[place] = next(token for token in source[place:] + source if token != ids[place])
        return self._output(ids, logprobs=right["logprobs"])

    def _repeated(self, references: References, request: Request, other: Request) -> Any:
        right = references.exact().run(request)
        return self._output(right["token_ids"][:1] * len(right["token_ids"]), logprobs=right["logprobs"])

    def _pool_text(self, references: References, request: Request, other: Request) -> Any:
        """Running text of the right length, as it could be baked into an artifact."""
        num_tokens = cast(PromptRequest, request).max_tokens
        ids = self._tokenizer.encode(cast(PromptRequest, other).prompt).ids
        repeated = ids * (1 + num_tokens // len(ids))
        return self._output(repeated[-num_tokens:], logprobs=[INVENTED_LOGPROB] * num_tokens)

    def _invented_logprobs(self, references: References, request: Request, other: Request) -> Any:
        """The right text, with log-probabilities that nobody computed."""
        right = references.exact().run(request)
        return {**right, "logprobs": [INVENTED_LOGPROB] * len(right["token_ids"])}

    def _output(self, ids: Sequence[int], *, logprobs: Sequence[float]) -> dict[str, Any]:
        text = self._tokenizer.decode(list(ids), skip_special_tokens=False)
        return {"token_ids": list(ids), "text": text, "logprobs": list(logprobs)}

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return load_tokenizer(self._model_dir)
