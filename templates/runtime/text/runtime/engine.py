"""The engine: one thread that plans a step, runs it, samples, and hands the new text to the event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import torch

from . import placement
from .interfaces import (
    KVCacheLike,
    ModelConfig,
    ModelLike,
    Output,
    SampledToken,
    SamplerLike,
    SchedulerLike,
    Sequence,
    Step,
)
from .metrics import Metrics
from .parameters import Parameters
from .spans import Spans


class OverloadedError(Exception):
    """As many requests are in flight and waiting as the parameters allow."""


class EngineFailedError(Exception):
    """The engine thread has died; the process has to be restarted."""


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The seams that the engine drives."""

    config: ModelConfig
    model: ModelLike
    kv_cache: KVCacheLike
    scheduler: SchedulerLike
    sampler: SamplerLike
    parameters: Parameters


class Engine:
    """`submit` and `abort` belong to the event loop's thread; everything with an underscore to the engine's."""

    def __init__(self, parts: Parts, *, metrics: Metrics, spans: Spans) -> None:
        self.parts = parts
        self.metrics = metrics
        self.spans = spans
        self.has_failed = False
        self.on_failure: Callable[[], None] = lambda: None
        """called from the engine thread as its last act when it dies"""
        self.num_unfinished = 0
        self._commands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._live: set[Sequence] = set()
        self._outputs: list[tuple[Sequence, Output]] = []
        self._is_last = True
        """of a step's tokens of a sequence: a constraint has accepted all of them, so it is complete after the last"""
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start the engine thread; outputs go to the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def stop(self) -> None:
        """End the engine thread after its current step and wait for it."""
        self._commands.put(None)
        self._thread.join()

    def submit(self, sequences: Items[Sequence]) -> None:
        """Queue sequences, all or none. Raises OverloadedError or EngineFailedError."""
        if self.has_failed:
            raise EngineFailedError
        limit = self.parts.parameters.max_num_seqs + self.parts.parameters.max_waiting
        if self.num_unfinished + len(sequences) > limit:
            raise OverloadedError
        self.num_unfinished += len(sequences)
        for sequence in sequences:
            self._commands.put(partial(self._add, sequence))

    def abort(self, sequences: Items[Sequence]) -> None:
        """Drop sequences whose client has gone and free their slots; finished ones are ignored."""
        for sequence in sequences:
            self._commands.put(partial(self._finish, sequence, "abort", ""))

    def _run(self) -> None:
        # OpenMP keeps the number of threads per calling thread
        placement.configure_threads(torch.get_num_threads())
        is_clean = False
        try:
            while self._take_commands():
                step = self.parts.scheduler.plan()
                if step is not None:
                    self._execute(step)
                self._publish()
            is_clean = True
        finally:
            self.has_failed = not is_clean
            self._close("abort" if is_clean else "error")
            if not is_clean:
                self.on_failure()

    def _close(self, reason: str) -> None:
        """Finish every sequence, also those that no step has seen, so that no client waits for ever."""
        while not self._commands.empty():
            command = self._commands.get_nowait()
            if command is not None:
                command()
        for sequence in tuple(self._live):
            self._finish(sequence, reason, "")
        self._publish()

    def _take_commands(self) -> bool:
        """Run what the event loop has asked for; wait for something where there is nothing else to do."""
        while True:
            try:
                command = self._commands.get(block=not self._live and not self._outputs)
            except queue.Empty:
                return True
            if command is None:
                return False
            command()

    def _execute(self, step: Step) -> None:
        started_s = perf_counter()
        for sequence in step.sequences:
            if sequence.scheduled_s is None:
                sequence.scheduled_s = started_s
                self.spans.add("queue", started_s - sequence.arrival_s)
        logits = self.parts.model.forward(step.batch, self.parts.kv_cache)
        for segment, sequence in zip(step.batch.segments, step.sequences, strict=True):
            sequence.num_computed_tokens = segment.stop_position
        forwarded_s = perf_counter()
        num_requests = self.parts.scheduler.num_running
        tokens = self.parts.sampler.sample(logits, step.sampled) if step.sampled else []
        sampled_s = perf_counter()
        self._keep(step, tokens, sampled_s)
        self.spans.add_forward(
            forwarded_s - started_s,
            num_rows=step.batch.num_rows,
            num_decode_rows=step.batch.num_decode_rows,
            num_requests=num_requests,
        )
        self.spans.add("sampling", (sampled_s - forwarded_s) * num_requests)
        self.spans.add("tokenize", (perf_counter() - sampled_s) * num_requests)

    def _keep(self, step: Step, tokens: Items[SampledToken], now_s: float) -> None:
        """Give every sequence its tokens: one, and one more for each of its guesses that was right."""
        num_read = 0
        token_ids: list[int] = step.batch.token_ids.tolist()
        num_sampled = Counter(step.sampled)
        for segment, sequence in zip(step.batch.segments, step.sequences, strict=True):
            if not num_sampled[sequence]:
                continue
            own = tokens[num_read : num_read + 1 + segment.num_draft_rows]
            num_read += len(own)
            drafts = token_ids[segment.stop_row - segment.num_draft_rows : segment.stop_row]
            num_right = num_equal(drafts, [token.token_id for token in own])
            # keys and values of wrong guesses are never read: the next rows overwrite them
            sequence.num_computed_tokens -= segment.num_draft_rows - num_right
            kept = own[: 1 + num_right]
            for number, token in enumerate(kept, start=1):
                # the token before may have ended it
                if sequence in self._live:
                    self._is_last = number == len(kept)
                    self._append(sequence, token, now_s)

    def _append(self, sequence: Sequence, token: SampledToken, now_s: float) -> None:
        sequence.output_token_ids.append(token.token_id)
        sequence.pending.append(token)
        self.metrics.generation_tokens += 1
        if sequence.last_token_s is None:
            self.metrics.ttft.observe(now_s - sequence.arrival_s)
        else:
            self.metrics.itl.observe(now_s - sequence.last_token_s)
        sequence.last_token_s = now_s
        text = sequence.detokenizer.add(token.token_id)
        reason = self._finish_reason(sequence, token.token_id)
        if reason is not None:
            self._finish(sequence, reason, text + sequence.detokenizer.flush())
        elif text:
            self._emit(sequence, text, None)

    def _finish_reason(self, sequence: Sequence, token_id: int) -> str | None:
        is_end = token_id in self.parts.config.eos_token_ids and not sequence.params.ignore_eos
        is_complete = self._is_last and sequence.constraint is not None and sequence.constraint.is_complete
        if sequence.detokenizer.is_stopped or is_end or is_complete:
            return "stop"
        if len(sequence.output_token_ids) >= sequence.params.max_tokens:
            return "length"
        return None

    def _add(self, sequence: Sequence) -> None:
        self._live.add(sequence)
        self.parts.scheduler.add(sequence)
        self.metrics.prompt_tokens += sequence.num_prompt_tokens

    def _finish(self, sequence: Sequence, reason: str, text: str) -> None:
        if sequence not in self._live:
            return
        self._live.remove(sequence)
        self.parts.scheduler.finish(sequence)
        self.metrics.count_finished(reason)
        self._emit(sequence, text, reason)

    def _emit(self, sequence: Sequence, text: str, reason: str | None) -> None:
        tokens, sequence.pending = tuple(sequence.pending), []
        output = Output(
            index=sequence.index, text=text, tokens=tokens, finish_reason=reason,
            num_accepted_prediction_tokens=sequence.num_accepted_prediction_tokens,
        )
        self._outputs.append((sequence, output))

    def _publish(self) -> None:
        """One wake-up of the event loop per step, whatever the batch."""
        self.metrics.num_running = self.parts.scheduler.num_running
        self.metrics.num_waiting = self.parts.scheduler.num_waiting
        self.metrics.kv_cache_usage = self.parts.kv_cache.usage
        if self._outputs and self._loop is not None and not self._loop.is_closed():
            outputs, self._outputs = joined(self._outputs), []
            self._loop.call_soon_threadsafe(self._deliver, outputs)

    def _deliver(self, outputs: list[tuple[Sequence, Output]]) -> None:
        """Runs on the event loop."""
        for sequence, output in outputs:
            if output.finish_reason is not None:
                self.num_unfinished -= 1
            sequence.sink.put_nowait(output)


def joined(outputs: Items[tuple[Sequence, Output]]) -> list[tuple[Sequence, Output]]:
    """One output per sequence: what a step has made of right guesses goes out as one event."""
    found: dict[Sequence, Output] = {}
    for sequence, output in outputs:
        before = found.get(sequence)
        if before is not None:
            output = replace(output, text=before.text + output.text, tokens=before.tokens + output.tokens)
        found[sequence] = output
    return list(found.items())


def num_equal(first: Items[int], second: Items[int]) -> int:
    """How many ids at the beginning of both are the same."""
    num = 0
    while num < min(len(first), len(second)) and first[num] == second[num]:
        num += 1
    return num
