"""The nouns that cross module borders and the contracts of the seams.

A *seam* is a module that a component may replace as a whole: `weights linear attention model kv_cache scheduler sampler
tokenizer constraints http placement`. Each exports the classes or functions named below under exactly these names; the
engine, the entry point and the other seams use nothing else of them.

    weights      load_config(model_dir) -> ModelConfig;  load_weights(model_dir) -> dict[str, Tensor]
    linear       class Linear(weight, *, parameters)                              see LinearLike
    attention    class Attention(config, *, parameters)                           see AttentionLike
    model        class Model(config, weights, *, parameters)                      see ModelLike
    kv_cache     class KVCache(config, *, parameters)                             see KVCacheLike
    scheduler    class Scheduler(kv_cache, *, parameters)                         see SchedulerLike
    sampler      class Sampler(config, *, parameters)                             see SamplerLike
    tokenizer    class Tokenizer(model_dir)                                       see TokenizerLike
    constraints  class ConstraintCompiler(model_dir, config)                      see ConstraintCompilerLike
    http         create_app(service) -> ASGI application                          see `service.Service`
    placement    configure_threads(num_threads); empty(shape, dtype=...) -> Tensor
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    """Sizes and constants of a Llama-architecture decoder, read from the model's own configuration files."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    tie_word_embeddings: bool
    eos_token_ids: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """How one sequence is sampled and when it ends. Temperature 0 is greedy."""

    max_tokens: int
    temperature: float = 1.0
    top_p: float = 1.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    num_logprobs: int | None = None
    """None = no log-probabilities; n = the emitted token's and the n most likely ones'"""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledToken:
    """One sampled token. Log-probabilities are of the model's raw distribution, before temperature and masks."""

    token_id: int
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()
    """(token id, log-probability), most likely first"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """What one step (or an abort) has made ready for the client of one sequence."""

    index: int
    """index of the choice inside its HTTP request"""
    text: str
    tokens: tuple[SampledToken, ...]
    """the tokens whose text is ready; several where UTF-8 or a stop string held text back"""
    finish_reason: str | None = None
    """stop, length, abort; None while the sequence runs"""
    num_accepted_prediction_tokens: int = 0
    """of the whole sequence; with its last output"""


class Sink(Protocol):
    """Where the engine leaves a sequence's outputs; called on the event loop's thread only (`asyncio.Queue` fits)."""

    def put_nowait(self, item: Output, /) -> None: ...


class Constraint(Protocol):
    """Grammar state of one sequence."""

    def mask(self, logits: Tensor) -> None:
        """Set the logits `[vocab]` of tokens that the grammar forbids now to -inf, in place."""
        ...

    def accept(self, token_id: int) -> None:
        """Advance the grammar by a sampled token. Raises ValueError for one that `mask` forbids."""
        ...

    @property
    def is_complete(self) -> bool:
        """Nothing but the end of the sequence may follow."""
        ...


class Detokenizer(Protocol):
    """Incremental text of one sequence.

    The concatenation of all returned texts equals `decode(token_ids)` (special tokens skipped), cut before the first
    stop string. No returned text ends inside a UTF-8 sequence or inside a possible stop string.
    """

    def add(self, token_id: int) -> str:
        """Text that has become final with this token; may be empty."""
        ...

    def flush(self) -> str:
        """The held-back rest, once no token follows."""
        ...

    @property
    def is_stopped(self) -> bool:
        """A stop string was met; what follows it is dropped."""
        ...


@dataclass(kw_only=True, eq=False, slots=True)
class Sequence:
    """One prompt on its way through the engine. Owned by the engine thread once submitted."""

    request_id: str
    index: int
    prompt_token_ids: list[int]
    params: SamplingParams
    detokenizer: Detokenizer
    sink: Sink
    constraint: Constraint | None = None
    generator: torch.Generator | None = None
    """set where temperature > 0"""
    prediction_token_ids: tuple[int, ...] = ()
    """what the client expects the output to be; a scheduler may draft from it"""
    arrival_s: float = 0.0
    """`time.perf_counter()` at submission"""

    output_token_ids: list[int] = field(default_factory=list)
    num_computed_tokens: int = 0
    """tokens whose keys and values are in the cache; advanced by the engine after a step"""
    slot: int | None = None
    """KV-cache slot; set and cleared by the scheduler"""
    num_accepted_prediction_tokens: int = 0
    """predicted tokens that are in the output; set by a scheduler that drafts, at the latest in `finish`"""
    pending: list[SampledToken] = field(default_factory=list)
    """sampled tokens whose text is not ready yet; kept by the engine"""
    scheduled_s: float | None = None
    """when it was first part of a step; set by the engine"""
    last_token_s: float | None = None
    """when its latest token was sampled; set by the engine"""

    @property
    def num_prompt_tokens(self) -> int:
        return len(self.prompt_token_ids)

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_token_ids) + len(self.output_token_ids)

    @property
    def max_num_tokens(self) -> int:
        """Most tokens that the sequence can ever hold; what the cache has to reserve."""
        return len(self.prompt_token_ids) + self.params.max_tokens

    def tokens_from(self, start: int, num_tokens: int) -> list[int]:
        """Ids of tokens `start : start + num_tokens` of prompt and output together."""
        num_prompt = len(self.prompt_token_ids)
        stop = start + num_tokens
        if start >= num_prompt:
            return self.output_token_ids[start - num_prompt : stop - num_prompt]
        return self.prompt_token_ids[start:stop] + self.output_token_ids[: max(0, stop - num_prompt)]


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """The rows of one sequence in a step: a prompt, a chunk of one, or one decode row and the draft rows behind it."""

    slot: int
    start_row: int
    num_rows: int
    start_position: int
    """position of the first row = number of tokens of this sequence already in the cache"""
    num_draft_rows: int = 0
    """last rows that hold guessed tokens; what the model makes of them is kept as far as the guesses were right"""

    @property
    def stop_row(self) -> int:
        return self.start_row + self.num_rows

    @property
    def stop_position(self) -> int:
        """Context length after the step."""
        return self.start_position + self.num_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """The flattened rows of one step, segment after segment."""

    token_ids: Tensor
    """int64 [num_rows]"""
    positions: Tensor
    """int64 [num_rows], of each row in its own sequence"""
    segments: tuple[Segment, ...]
    logits_rows: tuple[int, ...]
    """rows whose next token is wanted, ascending"""

    @property
    def num_rows(self) -> int:
        return self.token_ids.shape[0]

    @property
    def num_decode_rows(self) -> int:
        return sum(s.num_rows for s in self.segments if s.num_rows == 1 + s.num_draft_rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """A planned step: the batch and whose rows it holds."""

    batch: Batch
    sequences: tuple[Sequence, ...]
    """one per segment"""
    sampled: tuple[Sequence, ...]
    """one per entry of `batch.logits_rows`; a sequence with draft rows is there once for each of them, and once more"""


class LinearLike(Protocol):
    """`y = x W^T`. Constructed from the stored weight, bf16 [num_out, num_in]; may repack it once."""

    def __call__(self, x: Tensor) -> Tensor:
        """f32 [num_rows, num_in] -> f32 [num_rows, num_out]. A row's result does not depend on the other rows."""
        ...


class AttentionLike(Protocol):
    """Rotary embedding, cache write and causal attention of one layer over a batch."""

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, *, layer: int, batch: Batch, kv_cache: Any
    ) -> Tensor:
        """Attend each segment to its own slot.

        `query` f32 [num_rows, num_heads, head_dim], `key` and `value` f32 [num_rows, num_kv_heads, head_dim], all
        before the rotary embedding. Rotates query and key by `batch.positions`, writes key and value of every row to
        its slot and position in `kv_cache`, and returns f32 [num_rows, num_heads * head_dim]. A row sees the positions
        up to its own.
        """
        ...


class KVCacheLike(Protocol):
    """Keys and values of the running sequences. Its tensors are shared with `attention` and `model` only."""

    @property
    def usage(self) -> float:
        """Share of the cache in use, 0 to 1."""
        ...

    def allocate(self, num_tokens: int) -> int | None:
        """A free slot for a sequence that will hold at most `num_tokens`, or None while there is none."""
        ...

    def free(self, slot: int) -> None:
        """Give `slot` back. Its contents are never read again by another sequence."""
        ...


class ModelLike(Protocol):
    """The decoder. Holds its weights; everything about the running sequences is in the batch and the cache."""

    def forward(self, batch: Batch, kv_cache: Any) -> Tensor:
        """Run one step and return the logits, f32 [len(batch.logits_rows), vocab_size].

        Reports the seconds spent in linears and in attention to `spans.forward`.
        """
        ...


class SchedulerLike(Protocol):
    """Which rows run next. Called from the engine thread only."""

    @property
    def num_running(self) -> int:
        """Sequences that hold a cache slot."""
        ...

    @property
    def num_waiting(self) -> int: ...

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence. It fits the context: `max_num_tokens <= parameters.max_context_tokens`."""
        ...

    def plan(self) -> Step | None:
        """Admit what fits and plan the next step; None when there is nothing to run.

        Sets `slot` of the sequences it admits. Rows of a sequence start at its `num_computed_tokens`; a sequence whose
        last known token is among its rows has that row in `logits_rows`. Nothing is preempted.

        Behind the last known token of a greedy sequence it may put draft rows: guesses at what follows, all of them in
        `logits_rows`. The engine keeps the model's tokens up to the first wrong guess, and takes the cache back to the
        last right one. Drafts stay within `max_num_tokens`. A constraint is masked and accepts once for each row: one
        that does not know the guesses admits none.
        """
        ...

    def finish(self, sequence: Sequence) -> None:
        """Forget a sequence, waiting or running, and free its slot. Unknown sequences are ignored."""
        ...


class SamplerLike(Protocol):
    """Next tokens from logits."""

    def sample(self, logits: Tensor, sequences: Items[Sequence]) -> list[SampledToken]:
        """One token per row of `logits` f32 [len(sequences), vocab_size], which may be overwritten.

        Applies each sequence's constraint (mask, then accept), temperature, top_p and generator. A seeded sequence
        draws the same tokens whatever it is batched with.
        """
        ...


class TokenizerLike(Protocol):
    """Text <-> ids. Safe to call from several threads."""

    def encode(self, text: str) -> list[int]:
        """Ids of a completion prompt, with the special tokens that the model's post-processor adds."""
        ...

    def encode_continuation(self, text: str) -> list[int]:
        """Ids of text that follows other text: no special tokens are added."""
        ...

    def decode(self, token_ids: Items[int]) -> str:
        """Text of ids, special tokens skipped."""
        ...

    def token_text(self, token_id: int) -> str:
        """Text of one token by itself, special tokens included."""
        ...

    def render_chat(self, messages: list[dict[str, Any]]) -> list[int]:
        """Ids of a conversation up to the assistant's turn. Raises ValueError when the template refuses it."""
        ...

    def detokenizer(self, stop: tuple[str, ...]) -> Detokenizer: ...


class ConstraintCompilerLike(Protocol):
    """Grammars from `response_format`."""

    def compile(self, response_format: dict[str, Any]) -> Constraint | None:
        """Constraint of a request, None for plain text. Raises ValueError for an unknown type or an invalid schema."""
        ...
