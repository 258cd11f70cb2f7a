"""The engine: one thread that runs the model on recordings that have audio which no transcript has yet."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import torch

from . import placement
from .audio import Samples
from .interfaces import TOKENS_PER_S, DecoderLike, EncoderLike, SchedulerLike, TokenizerLike
from .metrics import Metrics
from .spans import Spans


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcribed:
    """The transcript of a recording's first `audio_end_ms`."""

    audio_end_ms: int
    token_ids: tuple[int, ...]
    text: str
    is_final: bool


OnTranscript = Callable[[Transcribed], None]


@dataclass(eq=False, kw_only=True)
class Hearing:
    """One recording. Fields below `on_transcript` are the engine's, under its lock."""

    on_transcript: OnTranscript
    """called on the event loop's thread: once for every step that took this recording, and once as final"""
    loop: asyncio.AbstractEventLoop
    encoder_state: Any
    decoder_state: Any
    pending: list[Samples] = field(default_factory=list)
    pending_end_ms: int = 0
    num_samples: int = 0
    """in the encoder"""
    waiting_since_s: float = 0.0
    is_committed: bool = False
    is_dropped: bool = False
    is_waiting: bool = False
    last: Transcribed | None = None


def max_tokens_of(audio_ms: int) -> int:
    """Longest transcript of so much audio."""
    return max(1, math.ceil(audio_ms * TOKENS_PER_S / 1000))


class Engine:
    """`open`, `hear`, `commit` and `drop` belong to the event loop's thread."""

    def __init__(
        self, *, encoder: EncoderLike, decoder: DecoderLike, scheduler: SchedulerLike, tokenizer: TokenizerLike,
        metrics: Metrics, spans: Spans,
    ) -> None:  # fmt: skip
        self._encoder, self._decoder = encoder, decoder
        self._scheduler, self._tokenizer = scheduler, tokenizer
        self._metrics, self._spans = metrics, spans
        self._changed = threading.Condition()
        self._waiting: list[Hearing] = []
        self._is_stopping = False
        self._num_threads = torch.get_num_threads()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def open(self, on_transcript: OnTranscript) -> Hearing:
        """A new recording, of a client on the running event loop."""
        return Hearing(
            on_transcript=on_transcript, loop=asyncio.get_running_loop(), encoder_state=self._encoder.open(),
            decoder_state=self._decoder.open(),
        )  # fmt: skip

    def hear(self, hearing: Hearing, samples: Samples, *, end_ms: int) -> None:
        """More audio, 16 kHz. `end_ms`: how much of the recording the client has sent with it. Audio that came before
        and still waits is taken together with it: one transcript answers both."""
        with self._changed:
            hearing.pending.append(samples)
            hearing.pending_end_ms = end_ms
            self._wait_for_turn(hearing)

    def commit(self, hearing: Hearing) -> None:
        """Nothing follows: the next transcript is the final one."""
        with self._changed:
            hearing.is_committed = True
            self._wait_for_turn(hearing)

    def drop(self, hearing: Hearing) -> None:
        """Nobody waits for it any more."""
        with self._changed:
            hearing.is_dropped = True
            if hearing.is_waiting:
                hearing.is_waiting = False
                self._waiting.remove(hearing)

    def stop(self) -> None:
        with self._changed:
            self._is_stopping = True
            self._changed.notify()
        self._thread.join()

    def _wait_for_turn(self, hearing: Hearing) -> None:
        if not hearing.is_waiting:
            hearing.is_waiting = True
            hearing.waiting_since_s = perf_counter()
            self._waiting.append(hearing)
        self._changed.notify()

    # -- the engine's thread

    def _run(self) -> None:
        placement.configure_threads(self._num_threads)
        with torch.inference_mode():
            while True:
                with self._changed:
                    while not self._waiting and not self._is_stopping:
                        self._changed.wait()
                    if self._is_stopping:
                        return
                    turns = [self._turn(hearing) for hearing in self._scheduler.choose(self._waiting)]
                self._step(turns)

    def _turn(self, hearing: Hearing) -> _Turn:
        """Take what waits. Called with the lock held."""
        self._waiting.remove(hearing)
        hearing.is_waiting = False
        self._spans.add("queue", perf_counter() - hearing.waiting_since_s)
        samples = np.concatenate(hearing.pending) if hearing.pending else np.zeros(0, dtype=np.float32)
        hearing.pending = []
        return _Turn(hearing, samples, end_ms=hearing.pending_end_ms, is_final=hearing.is_committed)

    def _step(self, turns: Sequence[_Turn]) -> None:
        """One transcript for every turn. One that brings no audio repeats its last transcript, as the final one."""
        self._metrics.num_running = len(turns)
        fresh = [turn for turn in turns if len(turn.samples)]
        heard = self._transcripts(fresh) if fresh else []
        for turn, ids in zip(fresh, heard, strict=True):
            started_s = perf_counter()
            text = self._tokenizer.decode(ids)
            self._spans.add("tokenize", perf_counter() - started_s)
            self._tell(turn, tuple(ids), text)
        for turn in (turn for turn in turns if turn not in fresh):
            last = turn.hearing.last
            self._tell(turn, last.token_ids if last else (), last.text if last else "")
        self._metrics.num_running = 0

    def _transcripts(self, turns: Sequence[_Turn]) -> list[list[int]]:
        started_s = perf_counter()
        chunks = [torch.from_numpy(turn.samples) for turn in turns]
        encoded = self._encoder.extend([turn.hearing.encoder_state for turn in turns], chunks)
        encoded_s = perf_counter()
        ids = self._decoder.transcribe(
            [turn.hearing.decoder_state for turn in turns], encoded, [max_tokens_of(turn.end_ms) for turn in turns]
        )
        for turn in turns:
            turn.hearing.num_samples += len(turn.samples)
        self._spans.add("prefill", len(turns) * (encoded_s - started_s))
        self._spans.add("decode.other", len(turns) * (perf_counter() - encoded_s))
        return ids

    def _tell(self, turn: _Turn, ids: tuple[int, ...], text: str) -> None:
        hearing = turn.hearing
        hearing.last = Transcribed(audio_end_ms=turn.end_ms, token_ids=ids, text=text, is_final=turn.is_final)
        if not hearing.is_dropped and not hearing.loop.is_closed():
            hearing.loop.call_soon_threadsafe(partial(hearing.on_transcript, hearing.last))


@dataclass(eq=False, slots=True)
class _Turn:
    """What one step takes of a recording."""

    hearing: Hearing
    samples: Samples
    end_ms: int
    is_final: bool
