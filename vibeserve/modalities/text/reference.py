"""The text reference: the model in transformers, greedy by itself, and teacher-forced on what a server returned.

Works for every causal language model that transformers loads. Scoring pads on the right of a causal forward: padding
follows every real token, whether attention or a recurrent state carries the past, so that no mask is needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from vibeserve.contract import Request
from vibeserve.core.nouns import PromptRequest
from vibeserve.modalities.text.constrained import Grammars, Replay, schema_of
from vibeserve.weights import load_tokenizer

if TYPE_CHECKING:
    import torch

MAX_BATCH_TOKENS = 4096
"""padded tokens per forward: large enough for full GEMM speed, small enough to bound activations"""
MAX_HEAD_ROWS = 512
"""rows per LM-head call: 512 rows of a 49k vocabulary are 100 MB of f32 logits"""
HEAD_TOLERANCE = 1e-3
"""of the logits of body and head apart from those of the whole model, as a share of their range"""
FOLDERS = {"float32": "f32", "bfloat16": "bf16"}


def load(path: str, device: str, dtype: str) -> TextReference:
    """The model of the folder at `path`, which holds `f32/` and `bf16/`; the f32 weights serve every other dtype.

    On a CPU bfloat16 is computed in f32 with every module's output rounded: transformers' own bf16 is up to thirty
    times slower there where the CPU has no instructions for it, and products are summed in f32 by either.
    """
    import torch
    from transformers import AutoModelForCausalLM

    folder = Path(path) / FOLDERS.get(dtype, "f32")
    if not folder.is_dir():
        folder = Path(path) / "f32"
    is_emulated = device == "cpu" and dtype == "bfloat16"
    computed = torch.float32 if is_emulated else getattr(torch, dtype)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=computed).eval().to(device)
    if is_emulated:
        round_outputs(model)
    return TextReference(model, tokenizer=load_tokenizer(Path(path)), device=device, folder=folder)


def round_outputs(model: Any) -> list[Any]:
    """Round what every module of `model` returns to the bf16 grid; the hooks that do it."""
    import torch

    def rounded(value: Any) -> Any:
        is_real = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.to(torch.bfloat16).to(value.dtype) if is_real else value

    def hook(module: Any, inputs: Any, output: Any) -> Any:
        return tuple(rounded(item) for item in output) if type(output) is tuple else rounded(output)

    return [module.register_forward_hook(hook) for module in model.modules()]


@dataclass(frozen=True)
class _Sequence:
    """One reply as ids: the prompt's and the served ones, and its place among the pairs."""

    index: int
    prompt_ids: list[int]
    served_ids: list[int]
    replay: Replay | None = None
    """the grammar that the reply had to keep to; it is used up by the scoring"""

    @property
    def num_input(self) -> int:
        # the last served id predicts nothing that was served
        return len(self.prompt_ids) + len(self.served_ids) - 1


class TextReference:
    """`run` gives `token_ids`, `text` and `logprobs`; `score` gives, one per served id in nats, `margins`, `gaps` (of
    the reference's two best tokens), `logprobs` and `end_margins` (of the likeliest end token in its place; empty for a
    model without one), and `problem` ("" when scored).

    A request with a `response_format` is run and scored under the mask of its grammar, without gaps and end margins;
    log-probabilities are of the model's raw distribution there, too.
    """

    def __init__(self, model: Any, *, tokenizer: Any, device: str, folder: Path | None = None) -> None:
        from transformers import GenerationConfig

        self._model = model
        self._folder = folder
        self._tokenizer = tokenizer
        self._device = device
        self._end_ids = _end_ids(model)
        # what generate() is not told it takes from here: neither sampling nor the end token may come in that way
        model.generation_config = GenerationConfig()

    def run(self, request: Request) -> dict[str, Any]:
        """Greedy text of `max_tokens` tokens; a request that does not ignore EOS ends with it."""
        asked = cast(PromptRequest, request)
        served, rows = self._generate(
            self._tokenizer.encode(asked.prompt).ids, max_tokens=asked.max_tokens, ignore_eos=asked.ignore_eos,
            replay=self._replay(asked),
        )  # fmt: skip
        logprobs = [float(row.log_softmax(-1)[token]) for row, token in zip(rows, served, strict=True)]
        text = self._tokenizer.decode(served, skip_special_tokens=False)
        return {"token_ids": served, "text": text, "logprobs": logprobs}

    def _generate(
        self, ids: Sequence[int], *, max_tokens: int, ignore_eos: bool, replay: Replay | None = None
    ) -> tuple[list[int], list[torch.Tensor]]:
        """Greedy ids after the prompt, and the logits [vocabulary] at each, before any mask."""
        import torch
        from transformers import GenerationConfig

        config = GenerationConfig(
            do_sample=False, max_new_tokens=max_tokens, pad_token_id=0, return_dict_in_generate=True,
            output_logits=True, eos_token_id=None if ignore_eos or not self._end_ids else self._end_ids,
        )  # fmt: skip
        prompt = torch.tensor([list(ids)], device=self._device)
        masks = [] if replay is None else [_Masked(replay, num_prompt=len(ids))]
        with torch.inference_mode():
            done = self._model.generate(
                prompt, attention_mask=torch.ones_like(prompt), generation_config=config, logits_processor=masks
            )
        return done.sequences[0, len(ids) :].tolist(), [logits[0].float() for logits in done.logits]

    def sure_tokens(self, prompt_ids: Sequence[int], *, max_tokens: int, gap_nats: float) -> list[int]:
        """The greedy ids after the prompt as far as every one is `gap_nats` or more above the second best: what honest
        rounding cannot change. Ends before an end token."""
        served, rows = self._generate(prompt_ids, max_tokens=max_tokens, ignore_eos=False)
        sure = []
        for token, row in zip(served, rows, strict=True):
            best, second = row.topk(2).values.tolist()
            if best - second < gap_nats or token in self._end_ids:
                break
            sure.append(token)
        return sure

    def chat_prompt(self, messages: Sequence[dict[str, str]]) -> list[int] | None:
        """Ids of the model's own chat template over these messages, up to where the assistant speaks; None for a model
        without one."""
        tokenizer = self._chat_tokenizer
        if tokenizer is None or not tokenizer.chat_template:
            return None
        ids = tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, return_dict=False)
        return [int(token) for token in ids]

    @cached_property
    def _chat_tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        return None if self._folder is None else AutoTokenizer.from_pretrained(self._folder)

    @property
    def max_tokens(self) -> int | None:
        """Positions of the model; None where it declares no limit, as recurrent ones do."""
        return getattr(self._text_config, "max_position_embeddings", None)

    def next_logprobs(self, prompt_ids: Sequence[int]) -> list[float]:
        """Log-probability of every token of the vocabulary right after the prompt, at temperature 1."""
        import torch

        ids = torch.tensor([list(prompt_ids)], device=self._device)
        with torch.inference_mode():
            row = self._model(input_ids=ids, use_cache=False).logits[0, -1].float()
        logprobs: list[float] = row.log_softmax(-1).tolist()
        return logprobs

    def score(self, request: Request, output: Any) -> dict[str, Any]:
        return self.score_many([(request, output)])[0]

    def score_many(self, pairs: Sequence[tuple[Request, Any]]) -> list[dict[str, Any]]:
        """Teacher-forced on the served ids, sorted by length and batched, the LM head only where something was served.

        Margins are the log-probability of the reference's best token minus that of the served one.
        """
        encode = self._tokenizer.encode
        return self.score_ids(
            [(encode(cast(PromptRequest, request).prompt).ids, output["token_ids"]) for request, output in pairs],
            replays=[self._replay(request) for request, _ in pairs],
        )

    def score_ids(
        self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]], *, replays: Sequence[Replay | None] = ()
    ) -> list[dict[str, Any]]:
        """`score_many` of (prompt ids, served ids); `replays`: the grammar of each, where there are any."""
        empty: dict[str, Any] = {"margins": [], "gaps": [], "logprobs": [], "end_margins": [], "problem": ""}
        answers = [dict(empty) for _ in pairs]
        sequences = []
        for index, (prompt_ids, served_ids) in enumerate(pairs):
            sequence = _Sequence(index, list(prompt_ids), list(served_ids), replays[index] if replays else None)
            problem = self._problem(sequence)
            if problem:
                answers[index]["problem"] = problem
            else:
                sequences.append(sequence)
        for batch in _batches(sequences, max_tokens=MAX_BATCH_TOKENS if self._has_plain_head else 1):
            for sequence, scores in self._score_batch(batch):
                if all(math.isfinite(value) for values in scores.values() for value in values):
                    answers[sequence.index] |= scores
                else:
                    answers[sequence.index]["problem"] = "the reference gave scores that are not numbers"
                if len(scores["margins"]) < len(sequence.served_ids):
                    place = len(scores["margins"])
                    answers[sequence.index]["problem"] = f"token {place} is not one that the reply's schema allows"
        return answers

    def _replay(self, request: Request) -> Replay | None:
        schema = schema_of(request)
        return None if schema is None else self._grammars.replay(schema)

    @cached_property
    def _grammars(self) -> Grammars:
        return Grammars(self._tokenizer.to_str(), vocab_size=int(self._text_config.vocab_size), end_ids=self._end_ids)

    @cached_property
    def _text_config(self) -> Any:
        return self._model.config.get_text_config()

    def _problem(self, sequence: _Sequence) -> str:
        if not sequence.prompt_ids or not sequence.served_ids:
            return "the prompt or the reply has no tokens"
        if not all(0 <= token < self._text_config.vocab_size for token in sequence.served_ids):
            return "a served id lies outside the vocabulary"
        if self.max_tokens and sequence.num_input > self.max_tokens:
            return f"prompt and reply exceed the model's {self.max_tokens} positions"
        return ""

    def _score_batch(self, batch: Sequence[_Sequence]) -> Iterator[tuple[_Sequence, dict[str, list[float]]]]:
        import torch

        width = max(sequence.num_input for sequence in batch)
        ids = torch.zeros(len(batch), width, dtype=torch.long)
        for row, sequence in enumerate(batch):
            tokens = sequence.prompt_ids + sequence.served_ids[:-1]
            ids[row, : len(tokens)] = torch.tensor(tokens)
        with torch.inference_mode():
            states = self._states(ids.to(self._device))
            for row, sequence in enumerate(batch):
                start = len(sequence.prompt_ids) - 1
                served = states[row, start : start + len(sequence.served_ids)]
                yield sequence, self._score_rows(served, sequence.served_ids, sequence.replay)

    def _states(self, ids: torch.Tensor) -> torch.Tensor:
        """Hidden states [rows, width, hidden], or logits [rows, width, vocabulary] where the head is not plain."""
        if self._has_plain_head:
            states: torch.Tensor = self._model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        else:
            states = self._model(input_ids=ids, use_cache=False).logits
        return states

    def _score_rows(
        self, states: torch.Tensor, served_ids: Sequence[int], replay: Replay | None
    ) -> dict[str, list[float]]:
        """Margins, log-probabilities and end margins of served ids from their rows [n, ...]; fewer where the grammar
        forbids one of them."""
        import torch

        margins: list[float] = []
        gaps: list[float] = []
        logprobs: list[float] = []
        ends: list[float] = []
        served = torch.tensor(served_ids, device=states.device)
        head = self._model.get_output_embeddings() if self._has_plain_head else torch.nn.Identity()
        for start in range(0, len(served_ids), MAX_HEAD_ROWS):
            rows = head(states[start : start + MAX_HEAD_ROWS]).float()
            chosen = rows.gather(1, served[start : start + MAX_HEAD_ROWS, None])[:, 0]
            logprobs += (chosen - rows.logsumexp(dim=1)).tolist()
            if replay is not None:
                margins += _masked_margins(rows, served_ids[start : start + MAX_HEAD_ROWS], replay)
                continue  # where a document ends is its grammar's to say
            top = rows.topk(2, dim=1).values
            best = top[:, 0]
            margins += (best - chosen).tolist()
            gaps += (best - top[:, 1]).tolist()
            if self._end_ids:
                ends += (best - rows[:, self._end_ids].max(dim=1).values).tolist()
        return {"margins": margins, "gaps": gaps, "logprobs": logprobs, "end_margins": ends}

    @cached_property
    def _has_plain_head(self) -> bool:
        """Whether head(body(x)) is all that the model does: some scale or cap the logits afterwards. Tried, not
        assumed."""
        import torch

        head = self._model.get_output_embeddings()
        if head is None or self._model.base_model is self._model:
            return False
        ids = torch.arange(3, 11, device=self._device)[None] % self._text_config.vocab_size
        with torch.inference_mode():
            states = getattr(self._model.base_model(input_ids=ids, use_cache=False), "last_hidden_state", None)
            whole = self._model(input_ids=ids, use_cache=False).logits.float()
            if states is None:
                return False
            apart = head(states).float()
        return bool((apart - whole).abs().max() <= HEAD_TOLERANCE * whole.abs().max())


class _Masked:
    """Logits processor of `generate`: what the grammar forbids is not chosen."""

    def __init__(self, replay: Replay, *, num_prompt: int) -> None:
        self._replay, self._num_seen = replay, num_prompt

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        for token in input_ids[0, self._num_seen :].tolist():
            self._replay.accept(token)
        self._num_seen = input_ids.shape[1]
        masked = scores.clone()
        self._replay.mask(masked[0])
        return masked


def _masked_margins(rows: torch.Tensor, served_ids: Sequence[int], replay: Replay) -> list[float]:
    """As far as the grammar allows what was served. 0 for text that it leaves no choice about."""
    margins = []
    for row, token in zip(rows, served_ids, strict=True):
        is_forced = replay.is_forced(token)
        masked = row.clone()
        replay.mask(masked)
        if not replay.accept(token):
            break
        margins.append(0.0 if is_forced else float(masked.max() - masked[token]))
    return margins


def _end_ids(model: Any) -> list[int]:
    """End tokens of the generation config where it names any, else of the model's, as servers take them."""
    declared = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    if declared is None:
        declared = getattr(model.config.get_text_config(), "eos_token_id", None)
    return [] if declared is None else list(declared) if isinstance(declared, list) else [int(declared)]


def _batches(sequences: Sequence[_Sequence], *, max_tokens: int) -> Iterator[list[_Sequence]]:
    """Sorted by length, so that little is padded; each batch within `max_tokens` padded tokens, one at least."""
    batch: list[_Sequence] = []
    for sequence in sorted(sequences, key=lambda item: item.num_input):
        if batch and sequence.num_input * (len(batch) + 1) > max_tokens:
            yield batch
            batch = []
        batch.append(sequence)
    if batch:
        yield batch
