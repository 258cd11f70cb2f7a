"""What the tests of the client and of the benchmark share: a small tokenizer, text's bundle, requests, replies made by
hand."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from vibeserve.core.nouns import Chunk, PromptRequest, Reply, Usage
from vibeserve.modalities import Bundle, bundle_ref, open_bundle
from vibeserve.spec import Slo, Spec, Workload

WORDS = "the quick brown fox jumps over a lazy dog while seven wizards brew potions in the naive cafe"
PIECES = tuple(f" {word}" for word in WORDS.split())
"""each is exactly one token of `word_tokenizer`"""


@cache
def word_tokenizer() -> Tokenizer:
    """Byte-level BPE in which every word of `WORDS`, with its space, is one token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([f" {WORDS}"] * 4, trainer=trainer)
    return tokenizer


@cache
def word_model_dir() -> Path:
    """Folder of a model that has nothing but `word_tokenizer`."""
    folder = Path(tempfile.mkdtemp(prefix="vibeserve-words-"))
    (folder / "f32").mkdir()
    word_tokenizer().save(str(folder / "f32" / "tokenizer.json"))
    return folder


def text_bundle(*, slo: Slo | None = None) -> Bundle:
    """The built-in modality of text over `word_tokenizer`."""
    spec = Spec(workload=Workload(kind="chat", slo=slo or Slo()))
    return open_bundle(bundle_ref(spec, model_dir=word_model_dir()))


def requests(*, max_tokens: int = 8, num: int | None = None, logprobs: int = 0) -> Iterator[PromptRequest]:
    """Requests `r-0`, `r-1`, ...; endless unless `num` is given."""
    for number in itertools.count() if num is None else range(num):
        yield PromptRequest(
            request_id=f"r-{number}",
            prompt=f"{number} the quick brown fox",
            num_prompt_tokens=5,
            max_tokens=max_tokens,
            logprobs=logprobs,
        )


def reply(
    chunks: Sequence[tuple[float, str]],
    *,
    scheduled_s: float = 0.0,
    end_s: float | None = None,
    error: str | None = None,
) -> Reply:
    """A reply whose chunks arrived at the given times; it ends with the last one unless told otherwise."""
    return Reply(
        request=next(requests()),
        scheduled_s=scheduled_s,
        sent_s=scheduled_s,
        end_s=end_s if end_s is not None else chunks[-1][0] if chunks else scheduled_s,
        chunks=tuple(Chunk(at_s=at_s, text=text) for at_s, text in chunks),
        finish_reason=None if error else "length",
        usage=None if error else Usage(prompt_tokens=5, completion_tokens=len(chunks)),
        error=error,
    )


def steady_reply(*, scheduled_s: float, ttft_s: float, tpot_s: float, num_tokens: int) -> Reply:
    """A reply of one token per chunk in a steady rhythm."""
    chunks = [(scheduled_s + ttft_s + k * tpot_s, PIECES[k % len(PIECES)]) for k in range(num_tokens)]
    return reply(chunks, scheduled_s=scheduled_s)
