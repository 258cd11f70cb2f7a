"""transformers' own `generate`, one request at a time: with prompt lookup, or under llguidance's token masks.

`python -m peer_server.transformers_engine --model-dir DIR --dtype bfloat16 --lookup-tokens 10 ...` and what
`serving.common_arguments` names. Without --lookup-tokens it takes a `response_format`.
"""

from __future__ import annotations

import argparse
import queue
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from .asking import Ask, BadRequestError, Limits
from .serving import Texts, common_arguments, serve
from .streams import TokenStream

WHITESPACE = r" |\n {0,8}"
"""between JSON tokens, as docs/workloads.md declares it for every reply under a schema"""


class Grammars:
    """llguidance over one tokenizer: grammars by schema, the latest kept."""

    def __init__(self, folder: Path, *, vocab_size: int, end_ids: Sequence[int]) -> None:
        import llguidance

        text = (folder / "tokenizer.json").read_text(encoding="utf-8")
        self._tokens = llguidance.LLTokenizer(text, n_vocab=vocab_size, eos_token=list(end_ids) or None)
        self._compiled = lru_cache(maxsize=256)(self._compile)

    def grammar(self, schema: str) -> str:
        """BadRequestError where llguidance cannot hold a reply to the schema."""
        return self._compiled(schema)

    def matcher(self, schema: str) -> Any:
        import llguidance

        return llguidance.LLMatcher(self._tokens, self.grammar(schema))

    def _compile(self, schema: str) -> str:
        import llguidance

        overrides = {"whitespace_pattern": WHITESPACE}
        try:
            grammar: str = llguidance.LLMatcher.grammar_from_json_schema(schema, overrides=overrides)
            problem = llguidance.LLMatcher.validate_grammar(grammar, self._tokens)
        except ValueError as error:
            problem = str(error)
        if problem:
            raise BadRequestError(f"response_format: the schema cannot be enforced: {problem}")
        return grammar


class Mask:
    """A logits processor and a stopping criterion: both see every id, and the first one to see it tells the matcher."""

    def __init__(self, matcher: Any, *, num_prompt: int) -> None:
        self._matcher = matcher
        self._num_read = num_prompt

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        import numpy as np
        import torch

        self._read(input_ids)
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        allowed = np.unpackbits(bits, bitorder="little")[: scores.shape[-1]]
        return scores.masked_fill(torch.from_numpy(allowed == 0), float("-inf"))

    def is_complete(self, input_ids: Any) -> bool:
        """Nothing but an end token may follow."""
        self._read(input_ids)
        stopped: bool = self._matcher.is_stopped()
        return stopped

    def _read(self, input_ids: Any) -> None:
        ids = input_ids[0, self._num_read :].tolist()
        self._num_read += len(ids)
        if ids and not self._matcher.is_stopped():
            self._matcher.consume_tokens(ids)


class TransformersEngine:
    """See `serving.Engine`. `lookup` is the number of guessed tokens and the longest n-gram that is looked for."""

    def __init__(
        self, folder: Path, *, dtype: str, threads: int, max_sequence_tokens: int, lookup: tuple[int, int] | None
    ) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(threads)
        self._threads = threads
        self._lookup = lookup
        self._model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, dtype), attn_implementation="sdpa", local_files_only=True
        )
        own = self._model.generation_config.eos_token_id
        self._end_ids = tuple(own) if isinstance(own, list) else () if own is None else (own,)
        # generate() fills what a request leaves open from here
        self._model.generation_config.eos_token_id = None
        vocab_size = self._model.config.get_text_config().vocab_size
        self.limits = Limits(
            max_sequence_tokens=max_sequence_tokens, vocab_size=vocab_size, constrains=lookup is None
        )
        self._grammars = Grammars(folder, vocab_size=vocab_size, end_ids=self._end_ids) if lookup is None else None
        self._waiting: queue.SimpleQueue[tuple[Ask, TokenStream]] = queue.SimpleQueue()

    def check(self, ask: Ask) -> None:
        if self._grammars is not None and ask.schema is not None:
            self._grammars.grammar(ask.schema)

    def submit(self, ask: Ask, stream: TokenStream) -> None:
        self._waiting.put((ask, stream))

    def run(self) -> None:
        import torch

        torch.set_num_threads(self._threads)
        while True:
            ask, stream = self._waiting.get()
            if not stream.is_abandoned:
                self._generate(ask, stream)

    def _generate(self, ask: Ask, stream: TokenStream) -> None:
        import torch
        from transformers import LogitsProcessorList, StoppingCriteriaList

        mask = self._mask(ask)
        writer = Writer(stream)
        prompt = torch.tensor([ask.prompt_ids])
        self._model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            generation_config=self._config(ask),
            logits_processor=LogitsProcessorList([] if mask is None else [mask]),
            stopping_criteria=StoppingCriteriaList([Ended(stream, mask)]),
            streamer=writer,
        )
        is_cut = writer.num_tokens >= ask.max_tokens and writer.last_id not in self._ends_of(ask)
        is_complete = mask is not None and mask.is_complete(torch.tensor([[*ask.prompt_ids, *writer.ids]]))
        stream.end("length" if is_cut and not is_complete else "stop")

    def _mask(self, ask: Ask) -> Mask | None:
        if self._grammars is None or ask.schema is None:
            return None
        return Mask(self._grammars.matcher(ask.schema), num_prompt=len(ask.prompt_ids))

    def _ends_of(self, ask: Ask) -> tuple[int, ...]:
        return () if ask.ignore_eos else self._end_ids

    def _config(self, ask: Ask) -> Any:
        from transformers import GenerationConfig

        num_tokens, longest = self._lookup or (None, None)
        return GenerationConfig(
            do_sample=False,
            max_new_tokens=ask.max_tokens,
            eos_token_id=list(self._ends_of(ask)) or None,
            pad_token_id=0,
            prompt_lookup_num_tokens=num_tokens,
            max_matching_ngram_size=longest,
        )


class Writer:
    """A streamer: what is accepted in one step goes out as one piece. `generate` hands it the prompt first."""

    def __init__(self, stream: TokenStream) -> None:
        self._stream = stream
        self._has_prompt = False
        self.ids: list[int] = []

    @property
    def num_tokens(self) -> int:
        return len(self.ids)

    @property
    def last_id(self) -> int | None:
        return self.ids[-1] if self.ids else None

    def put(self, value: Any) -> None:
        if not self._has_prompt:
            self._has_prompt = True
            return
        ids = value.reshape(-1).tolist()
        self.ids += ids
        self._stream.put(ids)

    def end(self) -> None: ...


class Ended:
    """A stopping criterion: the document is complete, or nobody waits for the rest."""

    def __init__(self, stream: TokenStream, mask: Mask | None) -> None:
        self._stream = stream
        self._mask = mask

    def __call__(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        import torch

        is_over = self._stream.is_abandoned or (self._mask is not None and self._mask.is_complete(input_ids))
        return torch.full((input_ids.shape[0],), is_over, dtype=torch.bool)


def main() -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser()
    common_arguments(parser)
    parser.add_argument("--model-dir", type=Path, required=True, help="folder of config.json and the weights")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), required=True)
    parser.add_argument("--lookup-tokens", type=int, help="guessed tokens a step; without it there is no lookup")
    parser.add_argument("--lookup-ngram", type=int, default=2, help="longest n-gram that is looked for")
    arguments = parser.parse_args()
    engine = TransformersEngine(
        arguments.model_dir,
        dtype=arguments.dtype,
        threads=arguments.threads,
        max_sequence_tokens=arguments.max_sequence_tokens,
        lookup=None if arguments.lookup_tokens is None else (arguments.lookup_tokens, arguments.lookup_ngram),
    )
    serve(engine, texts=Texts(arguments.tokenizer_dir), arguments=arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
