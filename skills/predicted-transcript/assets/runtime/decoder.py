"""The decoder, kept up: the old transcript is a guess of the new one, and what was heard is kept as keys and values.

More audio changes what the decoder hears, so that no row of its own cache stays right; but its words mostly do. All of
the old transcript is verified in one pass, and decoding goes on behind the first word that has changed. From there on
the rest of the old transcript is guessed again, a few words at a time, as long as guesses are right.

Cross-attention's keys and values of frames that are final are made once; provisional ones are overwritten.
Rows of all recordings of a step stand together in the linear layers; attention is each recording's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from .interfaces import Encoded, ModelConfig
from .layers import DecoderLayer, Memory, Rotation, Vocabulary, attend
from .parameters import Parameters

FIRST_CAPACITY = 256
"""frames; doubled as a recording grows"""


@dataclass
class Heard:
    """Keys and values of one layer's cross-attention, [capacity, num_heads, head_dim]."""

    keys: Tensor
    values: Tensor

    def write(self, first: int, keys: Tensor, values: Tensor) -> None:
        end = first + len(keys)
        if end > len(self.keys):
            capacity = max(2 * len(self.keys), end, FIRST_CAPACITY)
            self.keys, self.values = (_grown(old, capacity, kept=first) for old in (self.keys, self.values))
        self.keys[first:end] = keys
        self.values[first:end] = values


def _grown(old: Tensor, capacity: int, *, kept: int) -> Tensor:
    new = torch.empty(capacity, *old.shape[1:])
    new[:kept] = old[:kept]
    return new


@dataclass
class Transcript:
    """Of one recording."""

    heard: list[Heard]
    num_frames: int = 0
    token_ids: list[int] = field(default_factory=list)


class Run:
    """One transcript in the making. `token` and `guesses` are the next rows; `own` holds the rows before them."""

    def __init__(self, state: Transcript, *, max_tokens: int, config: ModelConfig, max_guesses: int) -> None:
        self.state = state
        self.ids: list[int] = []
        self.token = config.start_token_id
        self.is_done = False
        self._max_tokens, self._end_id = max_tokens, config.end_token_id
        self._max_guesses = max_guesses
        self._num_guesses = len(state.token_ids)
        shape = (max_tokens, config.num_heads, config.head_dim)
        self.own = [(torch.empty(shape), torch.empty(shape)) for _ in state.heard]
        self.num_rows = 0

    @property
    def guesses(self) -> list[int]:
        """What stood at these places of the old transcript. One place is left for the word behind them."""
        first = len(self.ids)
        room = min(self._num_guesses, self._max_tokens - first - 1)
        return self.state.token_ids[first : first + max(room, 0)]

    def take(self, chosen: Sequence[int], guesses: Sequence[int]) -> None:
        """`chosen`: the model's words behind each row. Keeps those up to the first wrong guess, that one corrected."""
        num_right = 0
        while num_right < len(guesses) and chosen[num_right] == guesses[num_right]:
            num_right += 1
        new = list(chosen[: num_right + 1])
        if self._end_id in new:
            new, self.is_done = new[: new.index(self._end_id)], True
        self.ids += new
        self.num_rows += num_right + 1
        self.is_done = self.is_done or len(self.ids) >= self._max_tokens
        if not self.is_done:
            self.token = self.ids[-1]
            self._num_guesses = self._next_num_guesses(num_right, len(guesses))

    def _next_num_guesses(self, num_right: int, num_guessed: int) -> int:
        """After a step that was right throughout more; after one with nothing right none, until the old words fit
        again; a word that was only exchanged leaves the others where they were."""
        if num_guessed and not num_right:
            return 0
        return min(self._max_guesses, max(2 * num_right, 1))


class Decoder:
    """See `interfaces.DecoderLike`."""

    def __init__(self, weights: dict[str, Tensor], *, config: ModelConfig, parameters: Parameters) -> None:
        self._config = config
        self._max_guesses = parameters.max_guesses
        self._layers = [
            DecoderLayer(weights, number, config=config, parameters=parameters) for number in range(config.num_layers)
        ]
        self._memory = Memory(weights, parameters=parameters)
        self._rotation = Rotation(config)
        self._vocabulary = Vocabulary(weights, parameters=parameters)

    def open(self) -> Transcript:
        empty = torch.empty(0, self._config.num_heads, self._config.head_dim)
        return Transcript(heard=[Heard(empty, empty) for _ in self._layers])

    def transcribe(
        self, states: Sequence[Transcript], encoded: Sequence[Encoded], max_tokens: Sequence[int], /
    ) -> list[list[int]]:
        self._hear(states, encoded)
        runs = [
            Run(state, max_tokens=longest, config=self._config, max_guesses=self._max_guesses)
            for state, longest in zip(states, max_tokens, strict=True)
        ]
        while active := [run for run in runs if not run.is_done]:
            guesses = [run.guesses for run in active]
            chosen = self._chosen(active, guesses)
            for run, guessed, words in zip(active, guesses, chosen, strict=True):
                run.take(words, guessed)
        for run in runs:
            run.state.token_ids = run.ids
        return [list(run.ids) for run in runs]

    def _hear(self, states: Sequence[Transcript], encoded: Sequence[Encoded]) -> None:
        """Keys and values of the frames that are new or have changed."""
        sizes = [len(each.frames) for each in encoded]
        memory = torch.cat([self._memory(each.frames, first=each.first) for each in encoded])
        for number, layer in enumerate(self._layers):
            keys, values = (part.split(sizes) for part in layer.heard(memory))
            for state, each, k, v in zip(states, encoded, keys, values, strict=True):
                state.heard[number].write(each.first, k, v)
        for state, each in zip(states, encoded, strict=True):
            state.num_frames = each.num_frames

    def _chosen(self, runs: Sequence[Run], guesses: Sequence[Sequence[int]]) -> list[list[int]]:
        """The model's word behind every row of every run."""
        rows = [[run.token, *guessed] for run, guessed in zip(runs, guesses, strict=True)]
        sizes = [len(part) for part in rows]
        x = self._vocabulary.rows(torch.tensor([token for part in rows for token in part]))
        places = [torch.arange(run.num_rows, run.num_rows + size) for run, size in zip(runs, sizes, strict=True)]
        rotation = self._rotation(torch.cat(places))
        for number, layer in enumerate(self._layers):
            q, k, v = (part.split(sizes) for part in layer.project(x, rotation))
            own = [_attend_own(run, number, *each) for run, *each in zip(runs, q, k, v, strict=True)]
            x = layer.add_own(x, torch.cat(own))
            asked = layer.query(x).split(sizes)
            x = layer.finish(x, torch.cat([_attend_heard(run, number, q) for run, q in zip(runs, asked, strict=True)]))
        words = self._vocabulary.logits(x).argmax(-1).split(sizes)
        return [part.tolist() for part in words]


def _attend_own(run: Run, number: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Rows see the rows before them and themselves. What stands behind `num_rows` is of wrong guesses."""
    first, end = run.num_rows, run.num_rows + len(q)
    keys, values = run.own[number]
    keys[first:end], values[first:end] = k, v
    mask = torch.arange(first, end)[:, None] >= torch.arange(end) if len(q) > 1 else None
    return attend(q, keys[:end], values[:end], mask)


def _attend_heard(run: Run, number: int, q: Tensor) -> Tensor:
    heard, num_frames = run.state.heard[number], run.state.num_frames
    return attend(q, heard.keys[:num_frames], heard.values[:num_frames])
